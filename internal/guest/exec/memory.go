package exec

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// memoryLeft is what has to be left in the machine, in bytes, when an interpreter has started. With
// less the kernel reads the programs' own pages from the disk over and over, and the machine hardly moves.
const memoryLeft = 64 << 20

// checkMemory refuses an interpreter that the machine has no room for, beside those that are starting.
func (c *contexts) checkMemory(l *language) error {
	needed := l.memory + memoryLeft
	for _, r := range c.order {
		if r != c.first && !r.settled() {
			needed += r.lang.memory
		}
	}
	available, err := memoryAvailable(c.s.cfg.Meminfo)
	if err != nil || available >= needed {
		return err
	}
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
		"the sandbox has %d MB of memory left, and an interpreter of %s needs %d MB; remove a context, or give the sandbox more memory",
		available>>20, l.name, needed>>20))
}

// What has been given up is available a moment later.
const (
	memoryWait = time.Second
	memoryLook = 20 * time.Millisecond
)

// awaitMemory gives memory a moment to become enough for an interpreter.
func (s *Service) awaitMemory(ctx context.Context, l *language) {
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	for {
		available, err := memoryAvailable(s.cfg.Meminfo)
		if err != nil || available >= l.memory+memoryLeft {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
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
