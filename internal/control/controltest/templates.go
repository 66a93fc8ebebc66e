package controltest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// Templates is a control.Templates in memory, with a template "default".
type Templates struct {
	// OnBuild, when set, is called by each build; its error fails the build.
	OnBuild func(ctx context.Context, name string) error

	mu     sync.Mutex
	list   []sandbox.Template // guarded by mu
	builds int                // guarded by mu
}

// NewTemplates makes Templates.
func NewTemplates() *Templates {
	return &Templates{list: []sandbox.Template{{Name: "default", Hash: strings.Repeat("ab", 32), SizeBytes: 1 << 30, BuiltAt: time.Now(), Goldens: []int{2}}}}
}

// Get returns a template.
func (t *Templates) Get(_ context.Context, name string) (sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.list {
		if x.Name == name {
			return x, nil
		}
	}
	return sandbox.Template{}, sandbox.Errorf(sandbox.NotFound, "template_not_found", "template %q does not exist; build it first", name)
}

// List lists them.
func (t *Templates) List(context.Context) ([]sandbox.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list), nil
}

// Build adds one.
func (t *Templates) Build(ctx context.Context, name string) (sandbox.Template, error) {
	t.mu.Lock()
	t.builds++
	t.mu.Unlock()
	done := progress.Step(ctx, "build root filesystem")
	if t.OnBuild != nil {
		if err := t.OnBuild(ctx, name); err != nil {
			return sandbox.Template{}, err
		}
	}
	done()
	if x, err := t.Get(ctx, name); err == nil {
		return x, nil
	}
	x := sandbox.Template{Name: name, Hash: strings.Repeat("cd", 32), BuiltAt: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, x)
	return x, nil
}

// Builds returns how often Build was called.
func (t *Templates) Builds() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.builds
}

// Remove removes one.
func (t *Templates) Remove(_ context.Context, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = slices.DeleteFunc(t.list, func(x sandbox.Template) bool { return x.Name == name })
	return nil
}
