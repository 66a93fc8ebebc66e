package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/progress"
)

// childServer is a server that is another process of this program, in a session of its
// own: a Ctrl-C at the terminal is not its.
type childServer struct {
	pid     int
	process *os.Process
	ended   chan struct{} // closed when it has
	err     error         // how it ended, nil when it left in order; to be read after that
}

// startChild starts a server on a prepared data directory, and returns when it serves. When
// it does not, it is ended, and the end of its log is shown.
func (p *program) startChild(ctx context.Context, r *config.Resolved) (*childServer, error) {
	home := config.Home(r.Server().Home)
	log, err := openLog(home)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args := append([]string{"up", "--prepared"}, r.FlagArgs()...)
	if p.configFile != "" {
		abs, err := filepath.Abs(p.configFile)
		if err != nil {
			return nil, fmt.Errorf("find the config file: %w", err)
		}
		args = append(args, "--config="+abs)
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/" // so that it keeps no other directory busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	c := &childServer{pid: cmd.Process.Pid, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.err = cmd.Wait()
	}()
	if err := p.watchChild(ctx, c, home); err != nil {
		p.printLogTail(home, start)
		return nil, err
	}
	return c, nil
}

// watchChild waits until the child serves. If it does not, it is ended.
func (p *program) watchChild(ctx context.Context, c *childServer, home config.Home) error {
	d := newDrawer(p.Err)
	defer d.Close()
	done := progress.Step(progress.With(ctx, d.Event), "start the server")

	ready, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-ready.Done():
		}
	}()
	_, err := p.waitReady(ready, home, c.pid)
	switch {
	case err == nil:
		done()
		return nil
	case ctx.Err() != nil:
		c.end(endTimeout)
		return ctx.Err()
	case c.hasEnded():
		return fmt.Errorf("the server ended at once: %w", c.err)
	}
	c.end(endTimeout)
	return fmt.Errorf("the server did not answer within %s and was ended: %w", readyTimeout, err)
}

// endTimeout is how long a child that does not serve may take to leave in order.
const endTimeout = 20 * time.Second

// end asks the child to end, and ends it when it does not within a time. It returns when
// it has ended.
func (c *childServer) end(patience time.Duration) {
	_ = c.process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
		_ = c.process.Kill() // likewise
		<-c.ended
	}
}

// hasEnded says whether it has, by itself or asked.
func (c *childServer) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}
