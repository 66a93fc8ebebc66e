package cli

import (
	"context"
	"fmt"
	"strings"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

// shortDigits is how many digits of an id are shown where a whole one is too
// long: enough to be unique among any number of sandboxes that a person has.
const shortDigits = 12

// shortID shortens the id of a sandbox, a checkpoint or a Space for a table.
func shortID(id string) string {
	if n := len("sbx_") + shortDigits; len(id) > n && strings.IndexByte(id, '_') == n-shortDigits-1 {
		return id[:n]
	}
	return id
}

// resolveID returns the id that s is, or is the unique beginning of.
func resolveID(ctx context.Context, c *client.Client, s string) (string, error) {
	if id, err := sandbox.ParseID(s); err == nil {
		return id.String(), nil
	}
	digits := strings.TrimPrefix(s, "sbx_")
	if digits == "" || strings.Trim(digits, "0123456789abcdef") != "" || len(digits) > 32 {
		return "", usageErrorf("%q is not the id of a sandbox; 'ramet ls' lists them", s)
	}
	var matches, stopped []string
	for sb, err := range c.Sandboxes(ctx, client.ListFilter{Status: "any"}) {
		if err != nil {
			return "", err
		}
		switch {
		case !strings.HasPrefix(sb.Id, "sbx_"+digits):
		case sb.Status == string(sandbox.Stopped):
			stopped = append(stopped, sb.Id)
		default:
			matches = append(matches, sb.Id)
		}
	}
	if matches == nil { // what is gone can only be meant when nothing else is
		matches = stopped
	}
	switch len(matches) {
	case 0:
		return "", &noSuchSandbox{s}
	case 1:
		return matches[0], nil
	}
	return "", fmt.Errorf("%d sandboxes have ids that begin with %s: %s", len(matches), s, someOf(matches, 3))
}

// noSuchSandbox says that no id begins as one was given.
type noSuchSandbox struct{ name string }

func (e *noSuchSandbox) Error() string {
	return fmt.Sprintf("no sandbox has an id that begins with %s; 'ramet ls' lists them", e.name)
}

// someOf lists the first n of names.
func someOf(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:n], ", ") + ", …"
}
