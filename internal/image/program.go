package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

const (
	// tailLines is how many lines of a failed program's output its error shows.
	tailLines = 15
	// backgroundNice is the niceness of programs of a build that nobody waits for.
	backgroundNice = 15
	// stopGrace is how long a cancelled program may tidy up before it is killed.
	stopGrace = 10 * time.Second
)

// program is a program of the host (or, with Root, of a root filesystem that
// is being built) to run with arguments, never through a shell.
type program struct {
	Name string
	Args []string
	// Root runs it in that directory as its root. Name must then be absolute.
	Root string
	Dir  string
	Env  []string // nil: a minimal environment
	// OnLine is called with every line that the program writes to standard
	// error, and to standard output unless Stdout is set.
	OnLine func(string)
	Stdout io.Writer
}

// programError says how a program failed. Tail is the end of its output.
type programError struct {
	Program string
	Tail    string
	Err     error
}

func (e *programError) Error() string {
	if e.Tail == "" {
		return fmt.Sprintf("%s: %v", e.Program, e.Err)
	}
	return fmt.Sprintf("%s: %v; its last output was:\n%s", e.Program, e.Err, e.Tail)
}

func (e *programError) Unwrap() error { return e.Err }

// run runs the program in a process group and a mount namespace of its own and
// waits for it. When ctx ends, the group is asked to stop and killed after
// stopGrace. What it mounted is gone with it.
func (p program) run(ctx context.Context) error {
	// Pdeathsig is tied to the thread that starts the program: keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.start(ctx, true)
	if errors.Is(err, unix.EPERM) && os.Geteuid() == 0 {
		err = p.start(ctx, false) // root without the right to make namespaces
	}
	return err
}

func (p program) start(ctx context.Context, ownMounts bool) error {
	cmd := exec.CommandContext(ctx, p.Name, p.Args...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	if cmd.Env == nil {
		cmd.Env = baseEnv()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Chroot: p.Root}
	if p.Root != "" && p.Dir == "" {
		cmd.Dir = "/"
	}
	if ownMounts && os.Geteuid() == 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	out := &lineWriter{onLine: p.OnLine}
	cmd.Stderr = out
	cmd.Stdout = out
	if p.Stdout != nil {
		cmd.Stdout = p.Stdout
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return missingProgram(p.Name)
		}
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if progress.IsBackground(ctx) {
		_ = unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, backgroundNice) // it may have ended just now
	}
	err := cmd.Wait()
	// Whatever the program left behind in its group has no business living on.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	out.flush()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err != nil {
		return &programError{Program: p.Name, Tail: strings.Join(out.tail, "\n"), Err: err}
	}
	return nil
}

// baseEnv is the environment of programs: nothing of ours but the proxies,
// which are part of how this host reaches a mirror.
func baseEnv() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// lineWriter splits output into lines, hands them on and remembers the last.
type lineWriter struct {
	onLine  func(string)
	tail    []string
	partial []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		advance, token, _ := bufio.ScanLines(b, false)
		if advance == 0 {
			if len(w.partial)+len(b) < 64<<10 { // a line has an end somewhere
				w.partial = append(w.partial, b...)
			}
			break
		}
		w.line(string(append(w.partial, token...)))
		w.partial, b = w.partial[:0], b[advance:]
	}
	return n, nil
}

func (w *lineWriter) flush() {
	if len(w.partial) > 0 {
		w.line(string(w.partial))
		w.partial = nil
	}
}

func (w *lineWriter) line(s string) {
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	if strings.TrimSpace(s) == "" {
		return
	}
	if len(w.tail) == tailLines {
		w.tail = append(w.tail[:0], w.tail[1:]...)
	}
	w.tail = append(w.tail, s)
	if w.onLine != nil {
		w.onLine(s)
	}
}

// HostPackage is a Debian package that the builder needs on the host, with a
// program by which it is recognised.
type HostPackage struct{ Name, Program string }

// HostPackages lists what a build needs on the host, for set-up and doctor.
func HostPackages() []HostPackage {
	return []HostPackage{
		{"mmdebstrap", "mmdebstrap"},
		{"e2fsprogs", "mkfs.ext4"},
		{"apt", "apt-get"},
		{"dpkg", "dpkg-deb"},
		{"debian-archive-keyring", ""},
	}
}

// missingHostPackages returns an error that names the packages to install, or nil.
func missingHostPackages() error {
	var missing []string
	for _, p := range HostPackages() {
		var err error
		if p.Program != "" {
			_, err = exec.LookPath(p.Program)
		} else {
			_, err = os.Stat(debianKeyring)
		}
		if err != nil {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "host_packages_missing",
		"building a template needs Debian packages that are not installed on this host: run 'apt-get install %s'", strings.Join(missing, " "))
}

func missingProgram(name string) error {
	for _, p := range HostPackages() {
		if p.Program == name {
			return sandbox.Errorf(sandbox.Unsupported, "host_packages_missing",
				"the program %s is missing on this host: run 'apt-get install %s'", name, p.Name)
		}
	}
	return sandbox.Errorf(sandbox.Unsupported, "host_packages_missing", "the program %s is missing on this host", name)
}
