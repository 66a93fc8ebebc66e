//go:build integration

package app

import (
	"os"
	"testing"
)

// DriverOfTests is the driver of the machines that the tests make.
func DriverOfTests() string {
	if name := os.Getenv("RAMET_TEST_DRIVER"); name != "" {
		return name
	}
	return "qemu"
}

// VirtualMachineOnly skips a test of what only a virtual machine has. scripts/no-skips lets it pass, and tells the reason.
func VirtualMachineOnly(t *testing.T, why string) {
	t.Helper()
	if DriverOfTests() == "gvisor" {
		t.Skip("virtual machines only: " + why)
	}
}

// MemoryFile is where a snapshot of the driver has most of its memory.
func MemoryFile() string {
	if DriverOfTests() == "gvisor" {
		return "pages.img"
	}
	return "memory.pages"
}
