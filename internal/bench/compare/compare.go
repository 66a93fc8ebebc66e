// Package compare measures what people would use instead of a server on this
// host: a Jupyter kernel that is kept alive, and a namespace container for each
// run. All of it is made for one run of 'ramet bench' and removed afterwards.
//
// Start reading at All.
package compare

import (
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/config"
)

// All returns the comparisons. home is the data directory of a server on this
// host, or "" when there is none.
func All(home string) func(bench.FloorConfig) []bench.Comparison {
	return func(cfg bench.FloorConfig) []bench.Comparison {
		j := jupyter{}
		c := container{home: config.Home(home), cfg: cfg}
		return []bench.Comparison{
			{
				Name: "jupyter_exec", Beside: "hot_exec", Default: 200, Max: 10000, Warm: 20, Open: j.open,
				About: "print(1) in a Jupyter kernel that runs",
			},
			{
				Name: "container_python", Beside: "roundtrip", Default: 50, Max: 1000, Open: c.open,
				About: "crun run: a container of the template's root filesystem with python3 -c 'print(1)', until it is gone",
			},
		}
	}
}

func unavailable(err error, format string, args ...any) error {
	return &bench.UnavailableError{What: fmt.Sprintf(format, args...), Err: err}
}

// cleaners are undone last in, first out.
type cleaners []func() error

func (c *cleaners) push(f func() error) { *c = append(*c, f) }

func (c *cleaners) run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}
