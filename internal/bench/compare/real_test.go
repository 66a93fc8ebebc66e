//go:build integration

package compare

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
)

// TestRealContainer runs containers of the template's root filesystem, and
// leaves nothing.
func TestRealContainer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	home := config.Home(os.Getenv("RAMET_TEST_HOME"))
	if home == "" {
		home = config.Home(filepath.Join(os.TempDir(), "ramet-test-home"))
	}
	err := app.Prepare(ctx, config.Server{
		Home: string(home), Listen: "127.0.0.1:0", Driver: "qemu", Accel: "auto", LogFormat: "text", LogLevel: "info",
		GuestCA: "host", Region: "local", Node: "test", Template: image.DefaultName,
	})
	if err != nil {
		t.Fatal(err)
	}
	builder, err := image.New(image.Config{TemplatesDir: home.Templates()})
	if err != nil {
		t.Fatal(err)
	}
	built, err := builder.Lookup(image.DefaultName)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(home.Instances())
	if err != nil {
		t.Fatal(err)
	}
	p, err := container{home: home, cfg: bench.FloorConfig{Template: image.DefaultName, TemplateHash: built.Hash}}.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds what the first has left
		if s, err := p.Once(ctx); err != nil || s.Took <= 0 {
			t.Errorf("%v, error %v", s, err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadDir(home.Instances()); err != nil || len(after) != len(before) {
		t.Errorf("left: %v, before %v, error %v", after, before, err)
	}
}
