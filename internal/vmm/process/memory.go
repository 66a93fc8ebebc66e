package process

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// kcmpVM asks kcmp(2) about address spaces.
const kcmpVM = 1

// compareMemory orders processes by their address space, in an order that means nothing but
// is the same at each call: 0 says that both have the same one.
func compareMemory(a, b int) (int, error) {
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	switch {
	case errno != 0:
		return 0, fmt.Errorf("compare the memory of processes %d and %d: %w", a, b, errno)
	case r == 1:
		return -1, nil
	case r == 2:
		return 1, nil
	}
	return int(r), nil
}

// SumPSS reads the proportional set size of several processes together, in bytes. Processes
// that run in one address space have one between them, although each of them shows the whole of it.
// Those that end meanwhile count for nothing. A kernel without kcmp(2) cannot tell: there each
// counts for itself.
func SumPSS(pids []int) (int64, error) {
	var sum int64
	var seen []int // a process of each address space, ordered by these
	for _, pid := range pids {
		at, again, err := search(seen, pid)
		if err == nil && !again {
			var pss int64
			if pss, err = PSS(pid); err == nil {
				sum += pss
				seen = slices.Insert(seen, at, pid)
			}
		}
		if err != nil && !HasEnded(pid) {
			return 0, err
		}
	}
	return sum, nil
}

// search looks for a process with the address space of pid.
func search(seen []int, pid int) (at int, found bool, err error) {
	at, found = slices.BinarySearchFunc(seen, pid, func(other, pid int) int {
		order, cerr := compareMemory(other, pid)
		if cerr == nil {
			return order
		}
		if !errors.Is(cerr, unix.ENOSYS) && !HasEnded(other) {
			err = cerr
		}
		return -1 // another one
	})
	return at, found, err
}
