package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ServerInfo is the content of server.json: the server that uses a data
// directory. A pid alone says nothing once its process has ended, so the
// process's start time and the host's boot id are kept with it.
type ServerInfo struct {
	PID int `json:"pid"`
	// StartTicks is the process's start in clock ticks since the boot, as in
	// field 22 of /proc/<pid>/stat.
	StartTicks uint64    `json:"start_ticks"`
	BootID     string    `json:"boot_id"`
	URL        string    `json:"url"`
	Version    string    `json:"version"`
	StartedAt  time.Time `json:"started_at"`
	// LocalCert is the certificate, in PEM, that a server with TLS shows to those
	// who ask for LocalName. Its key is in that server's memory only. Empty
	// without TLS.
	LocalCert string `json:"local_certificate,omitempty"`
}

// LocalName is the TLS server name by which programs of this host ask a server
// for the certificate in server.json. No public authority signs such a name.
const LocalName = "local.ramet.invalid"

// TLSClient returns how to verify that whoever answers is the server that i
// describes, whatever certificate it shows to others. It returns nil for a server without TLS.
func (i ServerInfo) TLSClient() (*tls.Config, error) {
	if i.LocalCert == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(i.LocalCert)) {
		return nil, errors.New("server.json has no usable certificate: start the server anew")
	}
	return &tls.Config{RootCAs: pool, ServerName: LocalName, MinVersion: tls.VersionTLS13}, nil
}

// ThisProcess returns the ServerInfo of the calling process.
func ThisProcess(url, version string) (ServerInfo, error) {
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		return ServerInfo{}, err
	}
	boot, err := bootID()
	if err != nil {
		return ServerInfo{}, err
	}
	return ServerInfo{
		PID: os.Getpid(), StartTicks: ticks, BootID: boot,
		URL: url, Version: version, StartedAt: time.Now().UTC(),
	}, nil
}

// Write puts i into the data directory's server.json, whole or not at all.
func (i ServerInfo) Write(h Home) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return fmt.Errorf("encode server.json: %w", err)
	}
	f, err := os.CreateTemp(string(h), ".server.json-*")
	if err != nil {
		return fmt.Errorf("write server.json: %w", err)
	}
	defer os.Remove(f.Name()) // nothing is left under this name after the rename
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), h.ServerInfo())
	}
	if err != nil {
		return fmt.Errorf("write server.json: %w", err)
	}
	return nil
}

// ReadServerInfo reads a data directory's server.json. The error wraps
// fs.ErrNotExist when there is none.
func ReadServerInfo(h Home) (ServerInfo, error) {
	f, err := os.Open(h.ServerInfo())
	if err != nil {
		return ServerInfo{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return ServerInfo{}, fmt.Errorf("read server.json: %w", err)
	}
	var i ServerInfo
	if err := json.Unmarshal(b, &i); err != nil {
		return ServerInfo{}, fmt.Errorf("read %s: %w", h.ServerInfo(), err)
	}
	return i, nil
}

// Process is a handle on a server's process that no other process can take
// over. Close it.
type Process struct{ fd int }

// Open returns a handle on the server that i describes. It wraps
// os.ErrProcessDone when that server no longer runs, also when its pid now
// belongs to a stranger.
func (i ServerInfo) Open() (*Process, error) {
	if i.PID <= 0 {
		return nil, fmt.Errorf("server.json names no process: %w", os.ErrProcessDone)
	}
	if boot, err := bootID(); err != nil || boot != i.BootID {
		return nil, fmt.Errorf("pid %d ran before the last boot: %w", i.PID, os.ErrProcessDone)
	}
	// The handle first, then the check: once the handle is held, the pid that
	// is checked cannot become another process's unnoticed.
	fd, err := unix.PidfdOpen(i.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("pid %d: %w", i.PID, os.ErrProcessDone)
	}
	if err != nil {
		return nil, fmt.Errorf("open pid %d: %w", i.PID, err)
	}
	p := &Process{fd: fd}
	ticks, err := startTicks(i.PID)
	if err != nil || ticks != i.StartTicks || p.ended() {
		p.Close()
		return nil, fmt.Errorf("pid %d is another process: %w", i.PID, os.ErrProcessDone)
	}
	return p, nil
}

// Running reports whether the server that i describes still runs.
func (i ServerInfo) Running() bool {
	p, err := i.Open()
	if err != nil {
		// Not ours to look at, but there: a process of another user.
		return !errors.Is(err, os.ErrProcessDone)
	}
	p.Close()
	return true
}

// Signal sends sig to the process.
func (p *Process) Signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// Wait waits until the process has ended, at most d. It reports whether it has.
func (p *Process) Wait(d time.Duration) (bool, error) {
	deadline := time.Now().Add(d)
	for {
		left := max(time.Until(deadline), 0)
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, fmt.Errorf("wait for the process: %w", err)
		default:
			return n > 0, nil
		}
	}
}

func (p *Process) ended() bool {
	done, err := p.Wait(0)
	return err != nil || done
}

// Close frees the handle.
func (p *Process) Close() error { return unix.Close(p.fd) }

// startTicks returns when a process started, in clock ticks since the boot.
func startTicks(pid int) (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read the start time of pid %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses, and may contain
	// both spaces and parentheses; count from its end.
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	const index = 22 - 3 // the first of these fields is field 3
	if end < 0 || len(fields) <= index {
		return 0, fmt.Errorf("read the start time of pid %d: unexpected /proc format", pid)
	}
	return strconv.ParseUint(fields[index], 10, 64)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
