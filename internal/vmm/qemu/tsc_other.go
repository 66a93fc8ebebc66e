//go:build !amd64

package qemu

// rdtsc is only there for hosts that run the machines; other builds have the commands.
func rdtsc() uint64 { return 0 }
