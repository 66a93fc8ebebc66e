package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestVersionOfAnUpgradedBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qemu")
	install := func(v string) {
		t.Helper()
		script := fmt.Sprintf("#!/bin/sh\necho 'QEMU emulator version %s (Debian)'\n", v)
		if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	install("7.2.19")
	b, err := newBinaryVersion(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := b.now().String(); got != "7.2.19" {
			t.Errorf("it is %s", got)
		}
	}
	install("9.1.0")
	if got := b.now().String(); got != "9.1.0" {
		t.Errorf("after the upgrade it is %s", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := b.now().String(); got != "9.1.0" {
		t.Errorf("while it is away it is %s", got)
	}
}
