package exec

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"ramet.dev/ramet/internal/guest/reap"
)

// Bounds of what an interpreter may say about its generators. A Mersenne Twister has
// 2496 bytes.
const (
	maxSeeds     = 16
	maxSeedBytes = 4096
)

// seeds are the numbers that the global random generators of an interpreter draw from, in
// its memory. Writing them from outside is the only way to change them before any thread
// of the interpreter runs: each of them may be in the middle of Python code, and code that
// the interpreter runs for us has to wait for it.
type seeds struct {
	mem   *os.File // the interpreter's memory
	spans [][2]int64
}

// learnLocked takes in where generators are that the interpreter has found. What it says
// can harm nobody but itself.
func (in *interpreter) learnLocked(spans [][2]int64) error {
	s := &in.seeds
	if len(s.spans)+len(spans) > maxSeeds {
		return fmt.Errorf("the interpreter has %d random generators", len(s.spans)+len(spans))
	}
	for _, span := range spans {
		if span[0] <= 0 || span[1] <= 0 || span[1] > maxSeedBytes {
			return fmt.Errorf("the interpreter has a random generator of %d bytes at %#x", span[1], span[0])
		}
	}
	if len(spans) > 0 && s.mem == nil {
		mem, err := openMemory(in.proc)
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		if err != nil {
			in.r.s.log.Warn("open the memory of the interpreter", "error", err)
			return nil // it reseeds itself, a moment later
		}
		s.mem = mem
	}
	s.spans = append(s.spans, spans...)
	return nil
}

// openMemory opens the memory of a process. The file is of this process whatever
// becomes of its pid.
func openMemory(p *reap.Process) (*os.File, error) {
	var mem *os.File
	err := p.WhileItLasts(func() (err error) {
		mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.Pid), os.O_WRONLY, 0)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = os.ErrProcessDone
	}
	return mem, err
}

// renew writes fresh numbers. The generators go on in the middle of them.
func (s *seeds) renew() error {
	var errs []error
	for _, span := range s.spans {
		fresh := make([]byte, span[1])
		rand.Read(fresh)
		_, err := s.mem.WriteAt(fresh, span[0])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *seeds) forget() {
	if s.mem != nil {
		s.mem.Close()
	}
	*s = seeds{}
}
