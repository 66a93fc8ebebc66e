package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// freezer stops and continues every process of a cgroup (version 2).
type freezer struct{ dir string }

// freezeTimeout bounds a freeze. A process in an uninterruptible system call
// stops only when that ends.
const freezeTimeout = 5 * time.Second

// freeze returns when every process stands still, or thaws them again.
func (f freezer) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	err := f.set(ctx, true)
	if err != nil {
		// The caller's context may be what ended it.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
		defer cancel()
		err = errors.Join(err, f.set(back, false))
	}
	return err
}

func (f freezer) thaw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	return f.set(ctx, false)
}

// set asks for a state and waits until the kernel says that it is reached.
func (f freezer) set(ctx context.Context, frozen bool) error {
	events, err := os.Open(filepath.Join(f.dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	want, value := []byte("frozen 0\n"), []byte("0")
	if frozen {
		want, value = []byte("frozen 1\n"), []byte("1")
	}
	if err := os.WriteFile(filepath.Join(f.dir, "cgroup.freeze"), value, 0); err != nil {
		return err
	}
	buf := make([]byte, 256)
	reached := func() (bool, error) {
		// Reading the file also rearms the poll.
		n, err := unix.Pread(int(events.Fd()), buf, 0)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", events.Name(), err)
		}
		return bytes.Contains(buf[:n], want), nil
	}
	if done, err := reached(); err != nil || done {
		return err // most of the time
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
		}
		_ = unix.Close(wake)
	}()
	for {
		if done, err := reached(); err != nil || done {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %q: %w", bytes.TrimSpace(want), context.Cause(ctx))
		}
		_, err = unix.Poll([]unix.PollFd{
			{Fd: int32(events.Fd()), Events: unix.POLLPRI},
			{Fd: int32(wake), Events: unix.POLLIN},
		}, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
