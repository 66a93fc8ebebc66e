package reap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newReaper(t *testing.T) (*Reaper, context.Context) {
	t.Helper()
	r := New()
	t.Cleanup(r.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return r, ctx
}

func TestExitStatusIsTheKernels(t *testing.T) {
	r, ctx := newReaper(t)
	for _, c := range []struct {
		name, script string
		code         int
		signal       unix.Signal
	}{
		{"success", "exit 0", 0, 0},
		{"failure", "exit 7", 7, 0},
		{"255", "exit 255", 255, 0},
		{"killed", "kill -9 $$", -1, unix.SIGKILL},
		{"terminated", "kill -15 $$", -1, unix.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := r.Start(exec.Command("/bin/sh", "-c", c.script))
			if err != nil {
				t.Fatal(err)
			}
			st, _, err := p.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if c.signal != 0 {
				if !st.Signaled() || st.Signal() != c.signal {
					t.Fatalf("status %#x, want signal %d", st, c.signal)
				}
			} else if !st.Exited() || st.ExitStatus() != c.code {
				t.Fatalf("status %#x, want exit %d", st, c.code)
			}
		})
	}
}

func TestHundredsOfShortChildren(t *testing.T) {
	r, ctx := newReaper(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 50 {
				want := (worker*50 + i) % 256
				p, err := r.Start(exec.Command("/bin/sh", "-c", "exit "+strconv.Itoa(want)))
				if err != nil {
					t.Error(err)
					return
				}
				st, _, err := p.Wait(ctx)
				if err != nil || st.ExitStatus() != want {
					t.Errorf("status %#x, error %v, want exit %d", st, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.procs) != 0 {
		t.Fatalf("%d processes left", len(r.procs))
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	r, _ := newReaper(t)
	for range 20 {
		if _, err := r.Start(exec.Command("/nonexistent/program")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("error %v, want not exist", err)
		}
	}
	if len(r.procs) != 0 {
		t.Fatalf("%d processes left", len(r.procs))
	}
}

func TestOrphansAreCollected(t *testing.T) {
	r, ctx := newReaper(t)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	// The shell ends at once; its child lives until its stdin, our pipe, ends.
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "cat <&3 >/dev/null & echo $!")
	cmd.Stdout = pw
	cmd.ExtraFiles = []*os.File{in}
	p, err := r.Start(cmd)
	pw.Close()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := pr.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(orphan, 0)
	if err != nil {
		t.Fatalf("the orphan is gone already: %v", err)
	}
	defer unix.Close(fd)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if parent := strings.Fields(rest)[1]; parent != strconv.Itoa(os.Getpid()) {
		t.Fatalf("the orphan's parent is %s, want %d", parent, os.Getpid())
	}
	hold.Close()
	waitNoProcess(t, ctx, fd, orphan)
}

// waitNoProcess waits until pid has ended and has been collected.
func waitNoProcess(t *testing.T, ctx context.Context, pidfd, pid int) {
	t.Helper()
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); errors.Is(err, unix.ESRCH) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d is still a zombie", pid)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	r, ctx := newReaper(t)
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	cmd := exec.Command("/bin/cat")
	cmd.Stdin = in
	p, err := r.Start(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := p.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want canceled", err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	st, usage, err := p.Wait(ctx)
	if err != nil || st.Signal() != unix.SIGTERM {
		t.Fatalf("status %#x, error %v", st, err)
	}
	if usage.Maxrss == 0 {
		t.Error("no resource usage")
	}
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal after the end: %v", err)
	}
}

func TestSignalGroupReachesGrandchildren(t *testing.T) {
	r, ctx := newReaper(t)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo ready; wait")
	cmd.Stdout = pw
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := r.Start(cmd)
	pw.Close()
	if err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 16)
	if _, err := pr.Read(ready); err != nil {
		t.Fatal(err)
	}
	if err := p.SignalGroup(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if st, _, err := p.Wait(ctx); err != nil || st.Signal() != unix.SIGTERM {
		t.Fatalf("status %#x, error %v", st, err)
	}
	// The pipe ends only when the grandchild, which holds it too, is dead.
	if err := pr.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := pr.Read(ready); !errors.Is(err, io.EOF) {
		t.Fatalf("read %v, want the end of file", err)
	}
}

func TestNothingOutlivesTheLeaderOfAGroupThatEndsWithIt(t *testing.T) {
	r, ctx := newReaper(t)
	for _, c := range []struct {
		name, script string
		end          func(*Process) error
	}{
		// What a shell puts in the background takes no notice of an interrupt.
		{"by a signal", "sleep 1000 & sleep 1000 & echo ready; wait", func(p *Process) error { return p.SignalGroup(unix.SIGINT) }},
		{"by itself", "sleep 1000 & echo ready; kill -STOP $$; exit 7", func(p *Process) error { return p.Signal(unix.SIGCONT) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			pr, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer pr.Close()
			cmd := exec.Command("/bin/sh", "-c", c.script)
			cmd.Stdout = pw
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			p, err := r.Start(cmd)
			pw.Close()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(pr, make([]byte, len("ready\n"))); err != nil {
				t.Fatal(err)
			}
			p.EndGroup()
			waitStopped(t, ctx, p.Pid, c.name == "by itself")
			if err := c.end(p); err != nil {
				t.Fatal(err)
			}
			st, _, err := p.Wait(ctx)
			if err != nil || c.name == "by itself" && st.ExitStatus() != 7 {
				t.Errorf("status %#x, error %v", st, err)
			}
			// The pipe ends only when all who hold it are dead.
			if err := pr.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := pr.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("read %v, want the end of file", err)
			}
		})
	}
}

// waitStopped waits until a process has stopped, if it is to.
func waitStopped(t *testing.T, ctx context.Context, pid int, want bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for want {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d has not stopped", pid)
		}
	}
}

func TestStartRefusesWhatNeedsWait(t *testing.T) {
	r, ctx := newReaper(t)
	withReader := exec.Command("/bin/cat")
	withReader.Stdin = strings.NewReader("x")
	if _, err := r.Start(withReader); err == nil {
		t.Error("a reader as standard input was accepted")
	}
	if _, err := r.Start(exec.CommandContext(ctx, "/bin/true")); err == nil {
		t.Error("a command with a context was accepted")
	}
}
