package exec

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"connectrpc.com/connect"
)

// memoryLeft is what has to be left in the machine, in bytes, when an interpreter has started. With
// less the kernel reads the programs' own pages from the disk over and over, and the machine hardly moves.
const memoryLeft = 64 << 20

// checkMemory refuses an interpreter that the machine has no room for, beside those that are starting.
func (c *contexts) checkMemory(l *language) error {
	available, err := memoryAvailable(c.s.cfg.Meminfo)
	if err != nil {
		return err
	}
	needed := l.memory + memoryLeft
	for _, r := range c.order {
		if r != c.first && !r.settled() {
			needed += r.lang.memory
		}
	}
	if available >= needed {
		return nil
	}
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
		"the sandbox has %d MB of memory left, and an interpreter of %s needs %d MB; remove a context, or give the sandbox more memory",
		available>>20, l.name, needed>>20))
}

// settled says that the context's interpreter has taken what memory it takes to start.
func (r *repl) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.interp == nil {
		return false
	}
	select {
	case <-r.interp.started:
		return true
	default:
		return false
	}
}

// memoryAvailable returns what a file like /proc/meminfo says, in bytes.
func memoryAvailable(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s does not tell the memory that is available", file)
}
