package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

func dialUnix(ctx context.Context, path string) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := withShortPath(path, func(short string) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", short)
		if err != nil {
			return err
		}
		conn = c.(*net.UnixConn)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
