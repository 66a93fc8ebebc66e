package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/qemu/qmp"

	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
	"ramet.dev/ramet/internal/vmm/process"
)

// firstFD is the number of the first extra descriptor in a child.
const firstFD = 3

// oomScore makes the kernel choose a machine before the server when memory is short.
const oomScore = 500

// fdTable collects the descriptors that QEMU inherits, and nothing else.
type fdTable struct{ files []*os.File }

// add takes over f and returns its number in QEMU.
func (t *fdTable) add(f *os.File) int {
	t.files = append(t.files, f)
	return firstFD + len(t.files) - 1
}

func (t *fdTable) close() {
	for _, f := range t.files {
		f.Close() // QEMU has its own; ours were only for handing on
	}
	t.files = nil
}

func dupFile(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// launch starts the process, as a stranger: a uid of its own, a session of
// its own (the server's signals and its end do not reach it), an empty environment.
func (s *start) launch(context.Context) error {
	stderr, err := console.WriterFor(s.cfg.Dir, console.MonitorName)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd := exec.Command(s.cmd.Binary, s.cmd.args()...)
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C.UTF-8"}
	cmd.Stderr, cmd.ExtraFiles = stderr, s.give.files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Credential: &syscall.Credential{
			Uid: uint32(s.rec.UID), Gid: uint32(s.rec.UID), Groups: s.groups(),
		},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	// Handing it on made it blocking. A server that hangs must not stop QEMU.
	if err := unix.SetNonblock(int(stderr.Fd()), true); err != nil {
		return errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	m, err := s.d.newMachine(s.cfg, s.rec, cmd.Process.Pid, s.console)
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	s.m = m
	m.memory, m.base = s.memory, s.base
	m.reap = cmd.Wait
	m.watch()
	s.onFail(func() error {
		err := m.destroy()
		s.undead = err != nil
		return err
	})
	s.give.close()
	return s.settle(cmd.Process.Pid)
}

// settle finishes what can only be done to a running process. The guest does
// not run yet.
func (s *start) settle(pid int) error {
	st, err := process.ReadStat(pid)
	if err != nil {
		return fmt.Errorf("look at the new process: %w", err)
	}
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	s.rec.PID, s.rec.StartTime, s.rec.BootID = pid, st.StartTime, boot
	s.m.rec = s.rec
	if err := machinefile.Write(s.cfg.Dir, s.rec); err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScore)), 0); err != nil {
		return fmt.Errorf("set the machine's oom score: %w", err)
	}
	if err := s.d.cgroups.Place(strconv.Itoa(s.rec.UID), s.cfg.Shape, pid); err != nil {
		s.d.log.Debug("the machine has no cgroup of its own", "instance", s.cfg.Instance, "err", err)
	}
	if s.cfg.Background { // threads that it makes later inherit it
		return s.m.SetBackground(true)
	}
	return nil
}

// groups lets the machine open /dev/kvm where a group may.
func (s *start) groups() []uint32 {
	if s.rec.Accel != "kvm" {
		return nil
	}
	if g := kvmGroup(); g != 0 {
		return []uint32{g}
	}
	return nil
}

// connect waits for the monitor. QEMU took over a socket that listens
// already, so there is nothing to poll: the greeting comes when it is ready,
// and the connection breaks when QEMU ends instead.
func (s *start) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout,
		sandbox.Errorf(sandbox.Unavailable, "qemu_not_ready", "QEMU was not ready within %s", connectTimeout))
	defer cancel()
	return s.m.connect(ctx)
}

func (m *Machine) connect(ctx context.Context) error {
	conn, err := dialUnix(ctx, filepath.Join(m.dir, qmpName))
	if err != nil {
		return m.explain(ctx, err)
	}
	q, err := qmp.Connect(ctx, conn)
	if err != nil {
		return m.explain(ctx, err)
	}
	m.mu.Lock()
	m.qmp = q
	m.mu.Unlock()
	full := q.Subscribe("BLOCK_IO_ERROR")
	m.background.Go(func() { m.watchDisk(full) })
	caps := map[string]any{"capabilities": []any{map[string]any{"capability": "events", "state": true}}}
	return q.Run(ctx, "migrate-set-capabilities", caps, nil)
}

// ignoreExit drops the exit status of a process that was killed.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
