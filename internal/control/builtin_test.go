package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// science is a node whose template "science" can be built.
func science(t *testing.T) *node {
	t.Helper()
	return fresh(t, func(c *control.Config) {
		c.Builtin, c.Aliases = []string{"default", "science"}, map[string]string{"base": "default", "data": "science"}
	})
}

func from(t *testing.T, n *node, template string) (sandbox.Sandbox, *sandbox.Error) {
	t.Helper()
	sb, _, err := n.Create(t.Context(), project, control.CreateRequest{Template: template})
	var e *sandbox.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return sb, e
}

func TestAliasIsTheSameTemplate(t *testing.T) {
	n := science(t)
	sb, err := from(t, n, "base")
	if err != nil || sb.Template != "default" {
		t.Fatalf("%q, %v", sb.Template, err)
	}
	list, lerr := n.Templates(t.Context())
	if lerr != nil || len(list) != 1 || len(list[0].Aliases) != 1 || list[0].Aliases[0] != "base" {
		t.Errorf("templates %+v, %v", list, lerr)
	}
	if err := n.DeleteTemplate(t.Context(), "base"); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("removing it by its alias: %v", err)
	}
	if _, err := n.BuildTemplate(t.Context(), "data", func(progress.Event) {}); err != nil {
		t.Fatal(err)
	}
	if sb, err := from(t, n, "science"); err != nil || sb.Template != "science" {
		t.Errorf("built by its alias: %q, %v", sb.Template, err)
	}
}

func TestCreateFromATemplateThatIsNotBuiltBeginsItsBuild(t *testing.T) {
	n := science(t)
	open := make(chan struct{})
	background := make(chan bool, 1)
	n.templates.OnBuild = func(ctx context.Context, _ string) error {
		background <- progress.IsBackground(ctx)
		progress.Report(ctx, progress.Event{Step: "install", Detail: "x", Fraction: 0.42})
		<-open
		return nil
	}
	_, err := from(t, n, "data")
	if err == nil || err.Kind != sandbox.Unavailable || err.Code != "template_building" || err.RetryAfter <= 0 {
		t.Fatalf("first: %+v", err)
	}
	if !<-background {
		t.Error("the build takes the processors from others")
	}
	waitFor(t, 5*time.Second, "progress is told", func() bool {
		_, err = from(t, n, "science")
		return err != nil && strings.Contains(err.Message, "install, 42 %")
	})
	if b := n.Builds(); len(b) != 1 || b[0].Name != "science" || b[0].Fraction != 0.42 || b[0].Failed != "" {
		t.Errorf("builds %+v", b)
	}
	close(open)
	waitFor(t, 5*time.Second, "it is built", func() bool { _, err := from(t, n, "science"); return err == nil })
	if n.templates.Builds() != 1 || len(n.Builds()) != 0 {
		t.Errorf("%d builds, %+v", n.templates.Builds(), n.Builds())
	}
	if _, err := from(t, n, "nosuch"); err.Code != "template_not_found" {
		t.Errorf("one that is not known: %v", err)
	}
}

func TestFailedBackgroundBuildIsSeenAndBuiltAgainByHand(t *testing.T) {
	n := science(t)
	fail := true
	n.templates.OnBuild = func(context.Context, string) error {
		if fail {
			return sandbox.Errorf(sandbox.Unavailable, "no_space", "the disk is full")
		}
		return nil
	}
	if err := n.BuildInBackground([]string{"default", "science"}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 5*time.Second, "both have failed", func() bool { return len(n.Builds()) == 2 && n.Builds()[1].Failed != "" })
	if b := n.Builds()[1]; b.Name != "science" || b.Failed != "the disk is full" {
		t.Errorf("builds %+v", b)
	}
	before := n.templates.Builds()
	_, err := from(t, n, "science")
	if err == nil || err.Code != "template_build_failed" || !strings.Contains(err.Message, "the disk is full") || !strings.Contains(err.Message, "ramet template build science") {
		t.Errorf("create: %+v", err)
	}
	if n.templates.Builds() != before {
		t.Error("a create built it again")
	}
	if _, err := from(t, n, "default"); err != nil {
		t.Errorf("a template that has an older build: %v", err)
	}
	fail = false
	if _, err := n.BuildTemplate(t.Context(), "science", func(progress.Event) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := from(t, n, "science"); err != nil {
		t.Errorf("after the build: %v", err)
	}
	for _, b := range n.Builds() {
		if b.Name == "science" {
			t.Errorf("it still counts as failed: %+v", b)
		}
	}
}
