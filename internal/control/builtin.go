package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// buildRetryAfter is when a create from a template that is being built may be tried again.
const buildRetryAfter = 15 * time.Second

// BuildState is a template whose build is under way, or failed.
type BuildState struct {
	Name string
	// Step, Detail and Fraction (0 to 1; 0 is not known) say how far it is.
	Step, Detail string
	Fraction     float64
	// Failed says why it failed, in a sentence. Empty: it is under way.
	Failed string
}

// canonical returns the name of the template that a name or an alias means.
func (c *Control) canonical(name string) string {
	if to, ok := c.cfg.Aliases[name]; ok {
		return to
	}
	return name
}

// aliasesOf returns the other names of a template, sorted.
func (c *Control) aliasesOf(name string) []string {
	var found []string
	for alias, to := range c.cfg.Aliases {
		if to == name {
			found = append(found, alias)
		}
	}
	slices.Sort(found)
	return found
}

// Builds lists the templates whose builds are under way or failed, by name.
func (c *Control) Builds() []BuildState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []BuildState
	for name, b := range c.builds {
		list = append(list, b.state(name))
	}
	for name, err := range c.broken {
		list = append(list, BuildState{Name: name, Failed: sentence(err)})
	}
	slices.SortFunc(list, func(x, y BuildState) int { return strings.Compare(x.Name, y.Name) })
	return list
}

func (b *build) state(name string) BuildState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BuildState{Name: name, Step: b.last.Step, Detail: b.last.Detail, Fraction: b.last.Fraction}
}

// sentence is what a user may read of an error.
func sentence(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind != sandbox.Internal {
		return e.Message
	}
	return "it failed; the server's log says why"
}

// BuildInBackground builds templates one after the other, those that are not up to date,
// and logs how far it is. It returns at once.
func (c *Control) BuildInBackground(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return c.spawn(func() {
		for _, name := range names {
			b, events, leave, err := c.joinBuild(c.canonical(name), true)
			if err != nil {
				return // the server is going away
			}
			c.logBuild(name, b, events)
			leave()
		}
	})
}

// logBuild waits for a build and logs its steps.
func (c *Control) logBuild(name string, b *build, events <-chan progress.Event) {
	step, begin := "", time.Now()
	for {
		select {
		case e := <-events:
			if e.Step != step {
				step, begin = e.Step, time.Now()
				c.log.Info("building template", "template", name, "step", step)
			}
			if e.Done {
				c.log.Info("built a part of a template", "template", name, "step", step, "took", time.Since(begin).Round(time.Millisecond))
			}
		case <-b.done:
			return
		}
	}
}

// template returns a built template. One that can be built by its name begins to be.
func (c *Control) template(ctx context.Context, name string) (sandbox.Template, error) {
	t, err := c.templates.Get(ctx, name)
	if sandbox.KindOf(err) != sandbox.NotFound || !slices.Contains(c.cfg.Builtin, name) {
		return t, err
	}
	c.mu.Lock()
	failed := c.broken[name]
	c.mu.Unlock()
	if failed != nil {
		return t, &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "template_build_failed", Err: failed,
			Message: fmt.Sprintf("template %s could not be built: %s; 'ramet template build %s' tries again", name, sentence(failed), name),
		}
	}
	b, _, leave, err := c.joinBuild(name, true)
	if err != nil {
		return t, err
	}
	defer leave()
	how := ""
	if s := b.state(name); s.Step != "" {
		how = " (" + s.Step
		if s.Fraction > 0 {
			how += fmt.Sprintf(", %.0f %%", 100*s.Fraction)
		}
		how += ")"
	}
	return t, &sandbox.Error{
		Kind: sandbox.Unavailable, Code: "template_building", RetryAfter: buildRetryAfter,
		Message: fmt.Sprintf("template %s is being built%s, which takes some minutes; try again later", name, how),
	}
}
