package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// signals turns Ctrl-C, SIGTERM and SIGHUP into what a command does about
// them. While a command has something that a Ctrl-C should interrupt first
// (code that runs in a sandbox), that is interrupted by the first one; the
// second one, and everything else, ends ctx.
type signals struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ch     chan os.Signal
	quit   chan struct{}
	wg     sync.WaitGroup

	mu        sync.Mutex
	interrupt func(context.Context) // nil: a Ctrl-C ends ctx
}

// interruptTimeout bounds the call that interrupts code in a sandbox.
const interruptTimeout = 10 * time.Second

func watchSignals(parent context.Context) *signals {
	s := &signals{ch: make(chan os.Signal, 4), quit: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(parent)
	signal.Notify(s.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		for {
			select {
			case sig := <-s.ch:
				s.handle(sig)
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

func (s *signals) handle(sig os.Signal) {
	s.mu.Lock()
	interrupt := s.interrupt
	s.interrupt = nil // only once
	s.mu.Unlock()
	if sig == os.Interrupt && interrupt != nil {
		s.wg.Add(1)
		go func() { // so that the next Ctrl-C is seen meanwhile
			defer s.wg.Done()
			ctx, cancel := context.WithTimeout(s.ctx, interruptTimeout)
			defer cancel()
			interrupt(ctx)
		}()
		return
	}
	number, _ := sig.(syscall.Signal)
	s.cancel(&signalError{number})
}

// onInterrupt sets what the first Ctrl-C does; nil lets it end ctx.
func (s *signals) onInterrupt(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = f
}

// explain replaces an error that came of the end of ctx by the signal that ended it.
func (s *signals) explain(err error) error {
	var sig *signalError
	if err != nil && errors.As(context.Cause(s.ctx), &sig) {
		return sig
	}
	return err
}

// stop gives the signals back to the system and waits for what was started.
func (s *signals) stop() {
	signal.Stop(s.ch)
	s.cancel(nil)
	close(s.quit)
	s.wg.Wait()
}
