//go:build integration

package floor_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/bench/floor"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
)

// testHome is a data directory that is kept between runs, so that the template
// is built once.
func testHome() string {
	if home := os.Getenv("RAMET_TEST_HOME"); home != "" {
		return home
	}
	return filepath.Join(os.TempDir(), "ramet-test-home")
}

// TestRealFloors takes one sample of each floor that needs a machine of another
// kind, checks that it says where the time went, and that nothing is left.
func TestRealFloors(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	home := config.Home(testHome())
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
	before := entries(t, home.Instances())
	f, err := floor.Open(ctx, home, bench.FloorConfig{
		Template: image.DefaultName, TemplateHash: built.Hash, Isolation: "emulated", VCPUs: 2, MemoryMB: 1024, DiskMB: 4096,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, steps := range map[string][]string{
		bench.FloorCreate:       {"commit", "start", "start_launch", "start_load_device_state", "cont", "agent"},
		bench.FloorColdBoot:     {"start", "start_launch", "cont", "agent"},
		bench.FloorRoundTrip:    nil,
		bench.FloorHandOff:      {"commit", "cont", "hello"},
		bench.FloorRefill:       {"start", "cont", "agent", "first_exec"},
		bench.FloorExec:         nil,
		bench.FloorDownload256K: nil,
		bench.FloorSave64M:      nil,

		bench.FloorHandOffRoundTrip: nil,
	} {
		t.Run(name, func(t *testing.T) { sample(ctx, t, f, name, steps) })
	}
	if _, err := f.Open(ctx, "nosuch"); err == nil {
		t.Error("a floor that there is not was opened")
	}
	// A probe that is not closed, as after an error, leaves nothing either.
	if _, err := f.Open(ctx, bench.FloorHello); err != nil {
		t.Error(err)
	}
	if err := f.Close(ctx); err != nil {
		t.Error(err)
	}
	if after := entries(t, home.Instances()); !slices.Equal(before, after) {
		t.Errorf("left in the instance directory: %v, before %v", after, before)
	}
}

// sample takes two: the second one finds what the first has left.
func sample(ctx context.Context, t *testing.T, f *floor.Floors, name string, steps []string) {
	p, err := f.Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := p.Once(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Took <= 0 {
			t.Errorf("it took %s", s.Took)
		}
		for _, step := range steps {
			if _, found := s.Steps[step]; !found {
				t.Errorf("no step %s in %v", step, s.Steps)
			}
		}
	}
	if p.Close != nil {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
