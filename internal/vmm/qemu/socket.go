package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Unix socket paths are at most 107 bytes, and data directories can be deep.
// So sockets are named through a descriptor of their directory.
func withShortPath(path string, use func(short string) error) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path)))
}

// listenFile makes a listening socket at path for QEMU to accept on. Only root
// can connect to it.
func listenFile(path string) (*os.File, error) {
	var f *os.File
	err := withShortPath(path, func(short string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		f, err = l.File()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return f, nil
}

// dialRetry is how often a connection is tried again while the listener's queue is full.
const dialRetry = 10 * time.Millisecond

// dialUnix connects to a socket, waiting as long as ctx allows while QEMU has
// other connections to accept first. The kernel reports that as EAGAIN and has
// no way to wait for it.
func dialUnix(ctx context.Context, path string) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := withShortPath(path, func(short string) error {
		tick := time.NewTicker(dialRetry)
		defer tick.Stop()
		for {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", short)
			if err == nil {
				conn = c.(*net.UnixConn)
				return nil
			}
			if !errors.Is(err, unix.EAGAIN) {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return errors.Join(err, context.Cause(ctx))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
