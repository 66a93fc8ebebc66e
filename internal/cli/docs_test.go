package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/doctor"
)

// TestEveryCommandExplainsItself looks at all help screens.
func TestEveryCommandExplainsItself(t *testing.T) {
	p := &program{Options: Options{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Long == "" {
			t.Errorf("%s: the help is incomplete", path)
		}
		if !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s: no example", path)
		}
		for _, line := range strings.Split(c.Long+"\n"+c.Example, "\n") {
			if len([]rune(line)) > 82 {
				t.Errorf("%s: a line is too long for a terminal: %q", path, line)
			}
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if line != "" && !strings.Contains(line, "ramet") {
				t.Errorf("%s: an example without the program: %q", path, line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(p.newRoot())
}

// TestJSONIsDocumented looks for every name that --json can print.
func TestJSONIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	for _, v := range []any{
		v1.Sandbox{},
		v1.Context{},
		v1.Metrics{},
		v1.HostMetrics{},
		v1.Template{},
		v1.TemplateState{},
		v1.KeyCreated{},
		v1.Project{},
		v1.SandboxEvent{},
		v1.Usage{},
		v1.Forked{},
		v1.Checkpoint{},
		v1.Space{},
		v1.Diff{},
		v1.GCReport{},
		v1.Garbage{},
		treeNode{},
		v1.SandboxUsage{},
		v1.TemplateUsage{},
		v1.EgressPolicy{},
		egressJSON{},
		forwardJSON{},
		statusJSON{},
		runResultJSON{},
		runErrorJSON{},
		logLine{},
		settingJSON{},
		doctor.Report{},
		doctor.Result{},
		bench.Report{},
		bench.Host{},
		bench.Result{},
		bench.Times{},
		bench.Floor{},
		bench.PoolSplit{},
		bench.Rate{},
		bench.Memory{},
		bench.MachineMemory{},
		bench.Paused{},
		bench.Drivers{},
		bench.SideBySide{},
		bench.DriverTimes{},
		bench.DriverError{},
		bench.Point{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				continue // not shown, or shown by its own fields
			}
			if !strings.Contains(doc, `"`+name+`"`) && !strings.Contains(doc, "`"+name+"`") {
				t.Errorf("%T: docs/cli-json.md says nothing of %q", v, name)
			}
		}
	}
}

// TestSettingsAreDocumented looks for every setting with its flag, its variable
// and its default.
func TestSettingsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range config.Settings() {
		row := ""
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "| `"+s.Key+"` |") {
				row = line
			}
		}
		for _, want := range []string{"`" + s.Env() + "`", s.Flag(), s.Default} {
			if !strings.Contains(row, want) {
				t.Errorf("docs/configuration.md: the row of %s lacks %q: %q", s.Key, want, row)
			}
		}
	}
}
