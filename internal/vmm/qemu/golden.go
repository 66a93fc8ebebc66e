package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
)

// maxIdleGoldens is how many golden memories stay loaded without a machine
// that uses them, so that the next start does not have to load one again.
const maxIdleGoldens = 2

// golden is the boot memory of a golden snapshot in a sealed memfd: all
// machines map it privately and share its pages, and none can change it, not
// even by punching holes, whatever happens in QEMU. (QEMU before 8.2 opens
// even a private mapping's file for writing.)
type golden struct {
	key    string        // checksum; of empty memory its size
	loaded chan struct{} // closed when file or err is set
	file   *os.File
	err    error

	refs int // guarded by goldens.mu
}

// goldens is the driver's cache of golden memories.
type goldens struct {
	mu   sync.Mutex
	all  map[string]*golden // guarded by mu; by key
	idle []*golden          // guarded by mu; unused ones, oldest first
}

// get returns the memory of a snapshot, loading and verifying it if needed.
// f is nil for empty memory of mb MB, what a cold machine starts with. Release it when
// no machine will be started with it.
func (g *goldens) get(ctx context.Context, dir string, f *snapshot.File, mb int) (*golden, error) {
	key := fmt.Sprintf("empty %d", mb)
	if f != nil {
		key = f.SHA256
	}
	gold, mine := g.claim(key)
	if mine {
		gold.file, gold.err = loadGolden(dir, f, mb)
		g.settle(gold)
	}
	select {
	case <-gold.loaded:
	case <-ctx.Done():
		g.release(gold)
		return nil, context.Cause(ctx)
	}
	if gold.err != nil {
		return nil, gold.err
	}
	return gold, nil
}

// claim counts a reference; mine says that the caller has to load it.
func (g *goldens) claim(key string) (gold *golden, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gold, ok := g.all[key]; ok {
		if gold.refs == 0 {
			for i := range g.idle {
				if g.idle[i] == gold {
					g.idle = append(g.idle[:i], g.idle[i+1:]...)
					break
				}
			}
		}
		gold.refs++
		return gold, false
	}
	gold = &golden{key: key, loaded: make(chan struct{}), refs: 1}
	if g.all == nil {
		g.all = make(map[string]*golden)
	}
	g.all[key] = gold
	return gold, true
}

// settle publishes a loaded golden, or forgets one that could not be loaded,
// so that the next call tries again.
func (g *goldens) settle(gold *golden) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gold.err == nil && g.all[gold.key] != gold {
		gold.err = errors.Join(errors.New("the driver is closed"), gold.file.Close())
	}
	if gold.err != nil && g.all[gold.key] == gold {
		delete(g.all, gold.key)
	}
	close(gold.loaded)
}

func (g *goldens) release(gold *golden) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gold.refs--
	if gold.refs > 0 || g.all[gold.key] != gold {
		return
	}
	g.idle = append(g.idle, gold)
	if len(g.idle) > maxIdleGoldens {
		old := g.idle[0]
		g.idle = g.idle[1:]
		delete(g.all, old.key)
		old.file.Close() // machines have descriptors of their own
	}
}

// close closes all memories. Machines live on.
func (g *goldens) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, gold := range g.all {
		select {
		case <-gold.loaded:
			errs = append(errs, gold.file.Close())
		default: // settle closes it
		}
	}
	g.all, g.idle = nil, nil
	return errors.Join(errs...)
}

// loadGolden makes the sealed memory. Loading touches every page of it, so
// machines never wait for the disk.
func loadGolden(dir string, f *snapshot.File, mb int) (*os.File, error) {
	if size := int64(mb) << 20; f != nil && f.Size != size {
		return nil, &snapshot.CorruptError{Path: dir, Reason: fmt.Sprintf("its memory has %d bytes instead of %d", f.Size, size)}
	}
	mem, err := newMemory(goldenMemory, mb)
	if err != nil {
		return nil, err
	}
	if f != nil {
		if err := f.LoadMemory(dir, mem); err != nil {
			return nil, errors.Join(err, mem.Close())
		}
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(mem.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal golden memory: %w", err), mem.Close())
	}
	return mem, nil
}

// The names of memfds that are guests' boot memory. A machine is recognised by them after a
// restart of the server, so they never change.
const (
	goldenMemory    = "ramet-golden"
	newGoldenMemory = "ramet-new-golden"
)

// newMemory makes a memfd of mb MB.
func newMemory(name string, mb int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make guest memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(int64(mb) << 20); err != nil {
		return nil, errors.Join(fmt.Errorf("make guest memory: %w", err), f.Close())
	}
	return f, nil
}
