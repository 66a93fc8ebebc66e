package control

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// buildTimeout bounds one build of a template.
const buildTimeout = time.Hour

// build is the one build of a template under way. Those who ask for it at the same time follow it together.
type build struct {
	done     chan struct{}
	template sandbox.Template // set before done is closed
	err      error            // likewise

	mu        sync.Mutex
	last      progress.Event                   // guarded by mu; for those who come later
	followers map[chan progress.Event]struct{} // guarded by mu
}

// followerBuffer is how many events a slow follower may be behind before it misses some.
const followerBuffer = 256

// Templates lists the templates of this host.
func (c *Control) Templates(ctx context.Context) ([]sandbox.Template, error) {
	list, err := c.templates.List(ctx)
	for n := range list {
		list[n].Aliases = c.aliasesOf(list[n].Name)
	}
	return list, err
}

// BuildTemplate builds a template, or joins the build of it that is under way,
// and reports its progress. The build goes on when ctx ends.
func (c *Control) BuildTemplate(ctx context.Context, name string, report progress.Func) (sandbox.Template, error) {
	name = c.canonical(name)
	if err := checkTemplateName(name); err != nil {
		return sandbox.Template{}, err
	}
	b, events, leave, err := c.joinBuild(name, false)
	if err != nil {
		return sandbox.Template{}, err
	}
	defer leave()
	for {
		select {
		case e := <-events:
			report(e)
		case <-b.done:
			for { // what came before the end
				select {
				case e := <-events:
					report(e)
					continue
				default:
				}
				return b.template, b.err
			}
		case <-ctx.Done():
			return sandbox.Template{}, fmt.Errorf("wait for the build of template %s: %w", name, context.Cause(ctx))
		}
	}
}

// joinBuild follows the build of a template under way, or begins one, of which it
// misses nothing; in the background when nobody waits for it.
func (c *Control) joinBuild(name string, background bool) (b *build, events <-chan progress.Event, leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, ok := c.builds[name]; ok {
		events, leave = b.follow()
		return b, events, leave, nil
	}
	b = &build{done: make(chan struct{}), followers: make(map[chan progress.Event]struct{})}
	events, leave = b.follow()
	err = c.spawnLocked(func() {
		ctx, cancel := context.WithTimeout(c.life, buildTimeout)
		defer cancel()
		if background {
			ctx = progress.InBackground(ctx)
		}
		begin := time.Now()
		b.template, b.err = c.templates.Build(progress.With(ctx, b.report), name)
		if b.err != nil {
			b.err = fmt.Errorf("build template %s: %w", name, b.err)
			level := slog.LevelError
			if kind := sandbox.KindOf(b.err); kind == sandbox.NotFound || kind == sandbox.Invalid {
				level = slog.LevelInfo // what was asked for cannot be; its caller is told
			}
			c.log.Log(ctx, level, "template not built", "template", name, "err", b.err)
		} else {
			c.log.Info("template built", "template", name, "hash", b.template.Hash, "took", time.Since(begin))
		}
		c.mu.Lock()
		delete(c.builds, name)
		if delete(c.broken, name); b.err != nil && slices.Contains(c.cfg.Builtin, name) && c.life.Err() == nil {
			c.broken[name] = b.err
		}
		c.mu.Unlock()
		close(b.done)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	c.builds[name] = b
	return b, events, leave, nil
}

// report passes an event to all followers. It never waits for a slow one.
func (b *build) report(e progress.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = e
	for ch := range b.followers {
		select {
		case ch <- e:
		default:
		}
	}
}

func (b *build) follow() (events <-chan progress.Event, leave func()) {
	ch := make(chan progress.Event, followerBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.Step != "" {
		ch <- b.last
	}
	b.followers[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.followers, ch)
	}
}

// DeleteTemplate removes a template that no sandbox stands on.
func (c *Control) DeleteTemplate(ctx context.Context, name string) error {
	name = c.canonical(name)
	if err := checkTemplateName(name); err != nil {
		return err
	}
	c.standing.Lock()
	defer c.standing.Unlock()
	if _, err := c.templates.Get(ctx, name); err != nil {
		return err
	}
	sandboxes, snapshots, err := c.store.CountOnTemplate(ctx, name)
	if err != nil {
		return err
	}
	if sandboxes+snapshots > 0 {
		return sandbox.Errorf(sandbox.Conflict, "template_in_use", "template %s is in use by %d sandboxes and %d snapshots; delete them first", name, sandboxes, snapshots)
	}
	c.mu.Lock()
	building := c.builds[name] != nil
	c.mu.Unlock()
	if building {
		return sandbox.Errorf(sandbox.Conflict, "template_building", "template %s is being built; try again when that has ended", name)
	}
	if err := c.templates.Remove(ctx, name); err != nil {
		return fmt.Errorf("remove template %s: %w", name, err)
	}
	c.log.Info("template removed", "template", name)
	return nil
}
