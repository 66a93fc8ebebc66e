package exec

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how much is read from a pipe at once.
	chunk = 64 << 10
	// maxPipe is the most bytes that a pipe can hold: what was written before
	// a moment has been read when this many bytes have.
	maxPipe = 1 << 20
)

// outputs reads the standard output and standard error of one process, or its
// terminal, whose output counts as the former.
type outputs struct {
	poller *poller
	pipes  [2]int // -1: at its end
	split  [2]splitter
	buf    []byte
	// hold is the programs' end of a terminal, nil otherwise: a terminal is at its end
	// whenever no program has it open, which may be for a moment only. It is closed when the process has ended.
	hold *os.File
}

func newOutputs() (o *outputs, stdout, stderr *os.File, err error) {
	p, err := newPoller()
	if err != nil {
		return nil, nil, nil, err
	}
	o = &outputs{poller: p, pipes: [2]int{-1, -1}, buf: make([]byte, chunk)}
	var ends [2]*os.File
	for i := range o.pipes {
		if o.pipes[i], ends[i], err = newPipe(); err == nil {
			err = p.add(o.pipes[i])
		}
		if err != nil {
			o.close()
			for _, f := range ends {
				if f != nil {
					f.Close()
				}
			}
			return nil, nil, nil, err
		}
	}
	return o, ends[0], ends[1], nil
}

// terminalOutputs reads a terminal; it owns both descriptors.
func terminalOutputs(fd int, slave *os.File) (*outputs, error) {
	p, err := newPoller()
	if err == nil {
		err = p.add(fd)
	}
	if err != nil {
		if p != nil {
			p.close()
		}
		unix.Close(fd)
		slave.Close()
		return nil, err
	}
	return &outputs{poller: p, pipes: [2]int{fd, -1}, buf: make([]byte, chunk), hold: slave}, nil
}

func (o *outputs) close() {
	o.release()
	for i := range o.pipes {
		o.closePipe(i)
	}
	o.poller.close()
}

func (o *outputs) closePipe(i int) {
	if o.pipes[i] >= 0 {
		unix.Close(o.pipes[i]) // which also takes it out of the epoll set
		o.pipes[i] = -1
	}
}

// release closes our copy of the programs' end of a terminal.
func (o *outputs) release() {
	if o.hold != nil {
		o.hold.Close()
		o.hold = nil
	}
}

func (o *outputs) open() bool { return o.pipes[0] >= 0 || o.pipes[1] >= 0 }

// sink takes the chunks of both streams.
type sink interface {
	stdout([]byte)
	stderr([]byte)
}

func (o *outputs) pass(i int, data []byte, to sink) {
	if i == 0 {
		to.stdout(data)
	} else {
		to.stderr(data)
	}
}

// take reads once from the pipe with the descriptor and says whether data came.
func (o *outputs) take(fd int, to sink) (got, more bool) {
	for i := range o.pipes {
		if o.pipes[i] != fd {
			continue
		}
		n, more, eof := readNow(fd, o.buf)
		if n > 0 {
			o.pass(i, o.split[i].push(o.buf[:n]), to)
		}
		if eof {
			o.closePipe(i)
		}
		return n > 0, more
	}
	return false, false
}

// run passes on output until both pipes are at their end, or the process has
// ended and nothing has come for the time quiet, or that has taken most.
func (o *outputs) run(quiet, most time.Duration, to sink) {
	ended := false
	var end time.Time
	for o.open() {
		events, err := o.poller.wait()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !ended:
			// The process has ended. What it wrote is in the pipes.
			ended = true
			end = time.Now().Add(most)
			o.release()
			o.drain(to)
			o.poller.deadline(time.Now().Add(quiet))
		case err != nil:
			o.finish(to)
			return
		}
		got := false
		for _, e := range events {
			if g, _ := o.take(int(e.Fd), to); g {
				got = true
			}
		}
		if ended && got {
			now := time.Now()
			if now.After(end) {
				break
			}
			o.poller.deadline(now.Add(quiet))
		}
	}
	o.finish(to)
}

// drain reads what is in the pipes now.
func (o *outputs) drain(to sink) {
	for _, fd := range o.pipes {
		for total := 0; fd >= 0 && total < maxPipe; total += chunk {
			if _, more := o.take(fd, to); !more {
				break
			}
		}
	}
}

// finish passes on incomplete characters that were held back.
func (o *outputs) finish(to sink) {
	for i := range o.split {
		o.pass(i, o.split[i].flush(), to)
	}
}

// nothing is the sink of output that came too late.
type nothing struct{}

func (nothing) stdout([]byte) {}
func (nothing) stderr([]byte) {}

// discard reads and drops output until the pipes are at their end, so that
// background processes that still hold them neither block nor die of SIGPIPE.
func (o *outputs) discard(stop <-chan struct{}) {
	if !o.open() {
		return
	}
	o.poller.deadline(time.Time{})
	o.buf = o.buf[: 4<<10 : 4<<10]
	done := make(chan struct{})
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		select {
		case <-stop:
			o.poller.wake()
		case <-done:
		}
	}()
	for o.open() {
		events, err := o.poller.wait()
		if err != nil {
			break
		}
		for _, e := range events {
			o.take(int(e.Fd), nothing{})
		}
	}
	close(done)
	<-woken
}
