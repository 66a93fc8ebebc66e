//go:build integration

package gvisor_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/gvisor"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

// newDriver makes a driver of the runsc that 'make build' has built.
func newDriver(t testing.TB) vmm.Driver {
	t.Helper()
	binary := os.Getenv("RAMET_RUNSC")
	if binary == "" {
		var err error
		if binary, err = filepath.Abs("../../../bin/ramet-runsc"); err != nil {
			t.Fatal(err)
		}
	}
	d, err := gvisor.New(t.Context(), gvisor.Config{Binary: binary, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestRealConformance(t *testing.T) {
	vmmtest.Run(t, vmmtest.Subject{Image: vmmtest.SandboxImage(t), NewDriver: newDriver})
}
