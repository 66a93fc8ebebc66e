package qemu

// rdtsc reads the time stamp counter.
func rdtsc() uint64
