//go:build integration

package app_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// screen is what a terminal of a sandbox has shown.
type screen struct {
	t      *testing.T
	b      *box
	run    string
	events <-chan event
	shown  string
	exit   string // code, when it has ended
}

// onTerminal starts a detached program on a terminal of 80 columns and 24 rows.
func (b *box) onTerminal(user string, argv ...string) *screen {
	b.t.Helper()
	s := &screen{t: b.t, b: b, events: b.s.stream(b.t, b.path("/processes"), obj{
		"argv": argv, "user": user, "detach": true, "tag": "shell", "pty": obj{"columns": 80, "rows": 24}, "env": obj{"PS1": "ready> "},
	})}
	return s
}

// followed is the same terminal in another sandbox or after a wake, from now on.
func (b *box) followed(run string) *screen {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "GET", b.s.url+b.path("/processes/"+run+"/stream?latest=true"), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		b.t.Fatalf("follow %s: %s", run, resp.Status)
	}
	events := make(chan event, 1024)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			var e event
			if len(lines.Bytes()) > 0 && json.Unmarshal(lines.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	return &screen{t: b.t, b: b, run: run, events: events}
}

// until waits until a text is shown behind what was waited for before, and returns what is in between.
func (s *screen) until(text string) string {
	s.t.Helper()
	deadline := time.After(90 * time.Second)
	for {
		if before, after, found := strings.Cut(s.shown, text); found {
			s.shown = after
			return before
		}
		select {
		case e, open := <-s.events:
			if !open {
				s.t.Fatalf("the stream ended before %q: %q", text, s.shown)
			}
			var out string
			switch {
			case e.Type == "started":
				s.run = e.ProcessID
			case e.Type == "stdout" && json.Unmarshal(e.Data, &out) == nil:
				s.shown += out
			case e.Type == "exit":
				s.exit = string(e.Data)
				s.shown += "<exit " + s.exit + ">"
			case e.Type == "stream_error":
				s.shown += "<" + e.Code + ">"
			}
		case <-deadline:
			s.t.Fatalf("%q was not shown: %q", text, s.shown)
		}
	}
}

// sleeper is what is typed for a job that says when a Ctrl-C reaches it and not the
// shell, which is still busy with starting it.
const sleeper = "sh -c 'echo begin; exec sleep 1000'\r"

func (s *screen) typeIn(text string) {
	s.t.Helper()
	s.b.s.call(s.t, "POST", s.b.path("/processes/"+s.run+"/stdin"), strings.NewReader(text), nil)
}

// TestRealShell uses a shell on a terminal in a guest, as a user who is not root.
func TestRealShell(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"memory_mb": 512})
	v := b.onTerminal("user", "bash", "--norc", "--noprofile", "-i")
	v.until("ready> ")
	v.typeIn("tty; stty size; echo $TERM $USER $HOME $PWD; sudo id -u; id -nG; x=kept; echo done $((1+1))\r")
	v.until("\r\n")
	got := strings.Split(strings.TrimSuffix(v.until("done 2\r\n"), "\r\n"), "\r\n")
	if len(got) != 5 || !strings.HasPrefix(strings.TrimPrefix(got[0], "\x1b[?2004l\r"), "/dev/pts/") ||
		got[1] != "24 80" || got[2] != "xterm-256color user /home/user /home/user" || got[3] != "0" || got[4] != "user" {
		t.Errorf("it says %q", got)
	}
	s.call(t, "POST", b.path("/processes/"+v.run+"/resize"), obj{"columns": 132, "rows": 50}, nil)
	v.typeIn("stty size\r")
	v.until("50 132\r\n")
	v.until("ready> ")
	v.typeIn(sleeper)
	v.until("\rbegin\r\n")
	v.typeIn("\x03")
	v.until("ready> ")
	v.typeIn("echo code $?\r")
	v.until("\rcode 130\r\n")

	// It goes on in a fork, which is another terminal from then on.
	forked := b.fork(1, nil)[0]
	child := forked.followed(v.run)
	child.typeIn("x=forked; echo child $x\r")
	child.until("\rchild forked\r\n")

	// And after a sleep.
	b.hibernate()
	v.until("<sandbox_hibernated>")
	woken := b.followed(v.run)
	woken.typeIn("echo mother $x; stty size\r")
	woken.until("\rmother kept\r\n50 132\r\n")
	woken.typeIn("exit 7\r")
	woken.until("<exit 7>")
	child.typeIn("exit 8\r")
	child.until("<exit 8>")
}

// TestRealShellCommand types into 'ramet shell' on a terminal of this host.
func TestRealShellCommand(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"memory_mb": 512})
	cmd := exec.Command(filepath.Join(filepath.Dir(os.Getenv("RAMET_AGENT")), "ramet"), "shell", b.ID, "--user", "user", "--env", "PS1=ready> ",
		"--", "bash", "--norc", "--noprofile", "-i")
	cmd.Env = append(os.Environ(), "RAMET_URL="+s.url, "RAMET_API_KEY="+s.key)
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 101, Rows: 31})
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	shown := make(chan string, 1024)
	ended := make(chan error, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			shown <- string(buf[:n])
			if err != nil {
				ended <- cmd.Wait()
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill() })
	screen := ""
	until := func(text string) {
		t.Helper()
		deadline := time.After(90 * time.Second)
		for {
			if _, after, found := strings.Cut(screen, text); found {
				screen = after
				return
			}
			select {
			case out := <-shown:
				screen += out
			case <-deadline:
				t.Fatalf("%q was not shown: %q", text, screen)
			}
		}
	}
	typeIn := func(text string) {
		t.Helper()
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	until("ready> ")
	typeIn("stty size; id -un\r")
	until("31 101\r\nuser\r\n")
	if err := pty.Setsize(master, &pty.Winsize{Cols: 140, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	typeIn("until [ \"$(stty size)\" = '40 140' ]; do sleep 0.1; done; echo resized $((1+1))\r")
	until("resized 2\r\n")
	until("ready> ")
	// How long a key takes to be seen.
	var times []time.Duration
	for i := range 60 {
		key := string(rune('a' + i%26))
		begin := time.Now()
		typeIn(key)
		until(key)
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("keys: p50 %v, p95 %v (load %s)", times[30], times[57], strings.Fields(string(load))[0])
	typeIn("\x03")
	until("ready> ")
	typeIn(sleeper)
	until("\rbegin\r\n")
	typeIn("\x03")
	if !onGVisor() { // whose terminals do not show it
		until("^C")
	}
	until("ready> ")
	typeIn("echo code $?; exit 7\r")
	until("code 130\r\n")
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("the command does not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	// A command that is killed hangs the terminal up.
	cmd = exec.Command(cmd.Path, "shell", b.ID, "--", "bash", "-c", "echo up; sleep 1001")
	cmd.Env = append(os.Environ(), "RAMET_URL="+s.url, "RAMET_API_KEY="+s.key)
	second, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if line, err := bufio.NewReader(second).ReadString('\n'); err != nil || line != "up\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	eventually(t, 60*time.Second, "what ran in it is gone", func() bool {
		return strings.TrimSpace(b.bash(fmt.Sprintf("pgrep -fx 'sleep %d' || echo none", 1001)).stdout) == "none"
	})
}
