package exec

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// oomCounter tells how many processes the kernel has killed for want of
// memory: in the user cgroup where there is one, else in the whole machine.
type oomCounter struct {
	file string
	key  string
}

func newOOMCounter(cgroup string) oomCounter {
	if cgroup != "" {
		events := filepath.Join(cgroup, "memory.events")
		if _, err := os.Stat(events); err == nil {
			return oomCounter{events, "oom_kill"}
		}
	}
	return oomCounter{"/proc/vmstat", "oom_kill"}
}

// read returns the count so far, or 0 where the kernel does not tell.
func (c oomCounter) read() uint64 {
	data, err := os.ReadFile(c.file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) == 2 && string(fields[0]) == c.key {
			n, _ := strconv.ParseUint(string(fields[1]), 10, 64)
			return n
		}
	}
	return 0
}
