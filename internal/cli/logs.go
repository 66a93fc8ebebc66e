package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

const (
	// maxLogEvents is how many events 'logs' shows, the newest.
	maxLogEvents = 1000
	// maxLogConsole bounds what is read of a console, in bytes.
	maxLogConsole = 1 << 20
	// consoleInterval is how often --follow looks at the console.
	consoleInterval = time.Second
)

// logLine is a line of 'logs'; docs/cli-json.md describes it.
type logLine struct {
	Time   *time.Time       `json:"time,omitempty"`
	Source string           `json:"source"` // "event" or "console"
	Text   string           `json:"text"`
	Event  *v1.SandboxEvent `json:"event,omitempty"`

	order time.Time // where it belongs
}

func (p *program) logsCommand() *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what a sandbox logged: its console and what happened to it",
		Long: `Show what a sandbox logged, in order of time: its life (every change of state with
its reason, and what its network refused) and the last lines of its serial
console, where its kernel and its agent write. With --follow it goes on with what
comes, until the sandbox is stopped or Ctrl-C.

Not every line of a console has a time; such a line stands behind the one before
it. The console is that of the machine that the sandbox has now: a hibernated one
has none. What programs print is theirs: 'ramet run' and 'ramet exec' show it.`,
		Example: `  ramet logs 3f2a
  ramet logs 3f2a -f
  ramet logs 3f2a --json | jq -r 'select(.source == "event") | .event.type'`,
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			return p.logs(ctx, c, id, follow, asJSON)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func (p *program) logs(ctx context.Context, c *client.Client, id string, follow, asJSON bool) error {
	var lines []logLine
	last, ended, left := "", false, 0
	for e, err := range c.Events(ctx, client.EventFilter{Sandbox: id}) {
		if err != nil {
			return err
		}
		if e.Type == "gap" {
			continue
		}
		last, ended = fmt.Sprint(e.Id), e.Type == "stopped"
		if len(lines) == 2*maxLogEvents {
			left += maxLogEvents
			lines = append(lines[:0], lines[maxLogEvents:]...)
		}
		lines = append(lines, eventLine(e))
	}
	if n := len(lines) - maxLogEvents; n > 0 {
		left, lines = left+n, lines[n:]
	}
	if left > 0 {
		fmt.Fprintf(p.Err, "ramet: %d older events are left out; 'ramet events --sandbox %s' shows them\n", left, shortID(id))
	}
	tail := consoleTail{c: c, id: id}
	console, err := tail.next(ctx)
	if err != nil {
		return err
	}
	if !follow {
		console = append(console, tail.rest()...)
	}
	lines = mergeLogs(lines, console)
	for _, l := range lines {
		if err := p.printLog(l, asJSON); err != nil {
			return err
		}
	}
	if !follow || ended {
		return nil
	}
	return p.followLogs(ctx, c, id, last, &tail, asJSON)
}

func eventLine(e *v1.SandboxEvent) logLine {
	at := e.Time
	return logLine{Time: &at, Source: "event", Text: fmt.Sprintf("%s: %s (%s)", e.Type, e.Reason, e.Cause), Event: e, order: at}
}

// mergeLogs puts the lines of a console among events, which are in order. Those of no known time
// before all others belong behind the last start of a machine.
func mergeLogs(events []logLine, console []logLine) []logLine {
	var at time.Time
	for _, l := range events {
		if l.Event.Type == "running" {
			at = l.order
		}
	}
	for i := range console {
		if t := console[i].Time; t != nil && t.After(at) {
			at = *t // a clock that was set back does not turn the console's own order around
		}
		console[i].order = at
	}
	all := append(events, console...)
	sort.SliceStable(all, func(i, j int) bool { return all[i].order.Before(all[j].order) })
	return all
}

// printLog prints one line. The guest wrote those of the console.
func (p *program) printLog(l logLine, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(p.Out)
		e.SetEscapeHTML(false)
		return e.Encode(l)
	}
	at := strings.Repeat(" ", len(time.DateTime))
	if l.Time != nil {
		at = l.Time.Local().Format(time.DateTime)
	}
	_, err := fmt.Fprintf(p.Out, "%s  %-7s  %s\n", at, l.Source, clean(l.Text))
	return err
}

// followLogs prints what comes until the sandbox is stopped.
func (p *program) followLogs(parent context.Context, c *client.Client, id, since string, tail *consoleTail, asJSON bool) error {
	ctx, end := context.WithCancelCause(parent)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	lines := make(chan logLine)
	send := func(l logLine) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	wg.Go(func() {
		for e, err := range c.Events(ctx, client.EventFilter{Sandbox: id, Since: since, Follow: true}) {
			if err != nil {
				end(err)
				return
			}
			if e.Type != "gap" && !send(eventLine(e)) {
				return
			}
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(consoleInterval)
		defer tick.Stop()
		for {
			found, err := tail.next(ctx)
			if err != nil {
				end(err)
				return
			}
			for _, l := range found {
				if l.Time == nil {
					now := time.Now().UTC()
					l.Time = &now // it came since the last look
				}
				if !send(l) {
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case l := <-lines:
			if err := p.printLog(l, asJSON); err != nil {
				return err
			}
			if l.Event != nil && l.Event.Type == "stopped" {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// consoleTail reads a console that can only be asked for its last lines.
type consoleTail struct {
	c       *client.Client
	id      string
	seen    string // as it was at the last look
	partial string // a line that has no end yet
}

// next returns the lines that came since the last call. A sandbox without a machine has none.
func (t *consoleTail) next(ctx context.Context) ([]logLine, error) {
	body, err := t.c.Console(ctx, t.id)
	var api *client.Error
	if errors.As(err, &api) && (api.Status == http.StatusConflict || api.Status == http.StatusNotFound) {
		t.seen, t.partial = "", ""
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxLogConsole))
	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}
	now := string(b)
	added, whole := newText(t.seen, now)
	if whole {
		t.partial = "" // of another machine, or of text that is lost
	}
	t.seen = now
	parts := strings.Split(t.partial+added, "\n")
	t.partial = parts[len(parts)-1]
	var lines []logLine
	for _, text := range parts[:len(parts)-1] {
		lines = append(lines, consoleLine(text)...)
	}
	return lines, nil
}

// rest returns the line that has no end yet.
func (t *consoleTail) rest() []logLine {
	text := t.partial
	t.partial = ""
	return consoleLine(text)
}

// overlap is how much of the end of an older text has to be found in a newer one, in bytes.
const overlap = 200

// newText returns what a text has beyond an older one, of which it may have lost the
// beginning. whole: they have nothing in common.
func newText(old, now string) (added string, whole bool) {
	if strings.HasPrefix(now, old) {
		return now[len(old):], false
	}
	end := old[max(0, len(old)-overlap):]
	if i := strings.LastIndex(now, end); i >= 0 {
		return now[i+len(end):], false
	}
	return now, true
}

// consoleLine is a line of a console; empty ones are none.
func consoleLine(text string) []logLine {
	text = strings.TrimRight(text, "\r ")
	if text == "" {
		return nil
	}
	l := logLine{Source: "console", Text: text}
	if _, after, found := strings.Cut(text, "time="); found {
		stamp, _, _ := strings.Cut(after, " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			at = at.UTC()
			l.Time = &at
		}
	}
	return []logLine{l}
}
