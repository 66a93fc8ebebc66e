package cli

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/config"
)

// desk is a person's terminal, with the command line running on it.
type desk struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	cmd    *exec.Cmd
	srv    *httptest.Server
	before unix.Termios

	mu    sync.Mutex
	shown bytes.Buffer
	more  chan struct{} // closed when more is shown or asked for

	requests map[string]int // by the last word of their path
	conns    int
	ended    chan struct{} // closed when the command has ended and all is shown
}

// newDesk starts a fake server with one sandbox.
func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := t.TempDir()
	d := &desk{t: t, more: make(chan struct{}), requests: map[string]int{}, ended: make(chan struct{})}
	api := clitest.New(dir).Handler()
	d.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.requests[filepath.Base(r.URL.Path)]++
		d.changedLocked()
		d.mu.Unlock()
		api.ServeHTTP(w, r)
	}))
	d.srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if s == http.StateNew {
			d.conns++
		}
	}
	d.srv.Start()
	t.Cleanup(d.srv.Close)
	t.Cleanup(d.srv.CloseClientConnections)
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(clitest.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := config.ThisProcess(d.srv.URL, "1.2.3-test")
	if err == nil {
		err = info.Write(config.Home(dir))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range [][2]string{{"RAMET_URL", d.srv.URL}, {"RAMET_HOME", dir}, {"HOME", dir}, {"TERM", "xterm-kitty"}, {"GORACE", "atexit_sleep_ms=0"}} {
		t.Setenv(kv[0], kv[1])
	}
	if out, err := exec.Command("ramet", "create").CombinedOutput(); err != nil {
		t.Fatalf("create: %v: %s", err, out)
	}
	d.mu.Lock()
	d.conns, d.requests = 0, map[string]int{}
	d.mu.Unlock()
	return d
}

// run starts the command line on a terminal of 100 columns and 30 rows.
func (d *desk) run(args ...string) {
	d.t.Helper()
	var err error
	if d.master, d.tty, err = pty.Open(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { d.master.Close(); d.tty.Close() })
	d.resize(100, 30)
	d.before = d.settings()
	d.cmd = exec.Command("ramet", args...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = d.tty, d.tty, d.tty
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { d.cmd.Process.Kill(); <-d.ended })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := d.master.Read(buf)
			d.mu.Lock()
			d.shown.Write(buf[:n])
			d.changedLocked()
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // its state says all
	}()
}

func (d *desk) settings() unix.Termios {
	d.t.Helper()
	s, err := unix.IoctlGetTermios(int(d.tty.Fd()), unix.TCGETS)
	if err != nil {
		d.t.Fatal(err)
	}
	return *s
}

func (d *desk) resize(columns, rows uint16) {
	d.t.Helper()
	if err := pty.Setsize(d.master, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) typeIn(text string) {
	d.t.Helper()
	if _, err := d.master.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) changedLocked() {
	close(d.more)
	d.more = make(chan struct{})
}

// wait waits until the screen or the requests are such.
func (d *desk) wait(what string, ok func() bool) {
	d.t.Helper()
	deadline := time.After(commandDeadline)
	for {
		d.mu.Lock()
		done, more := ok(), d.more
		d.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-deadline:
			d.t.Fatalf("still not: %s: %q", what, d.screen())
		}
	}
}

// until waits until the screen has shown a text.
func (d *desk) until(text string) {
	d.t.Helper()
	d.wait(text+" is shown", func() bool { return strings.Contains(d.shown.String(), text) })
}

// end waits for the end of the command and checks its code, and that the terminal is as
// it was before.
func (d *desk) end(code int) {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(commandDeadline):
		d.t.Fatalf("it did not end: %q", d.screen())
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit code %d, not %d: %q", got, code, d.screen())
	}
	if now := d.settings(); now != d.before {
		d.t.Errorf("the terminal is left as %+v, it was %+v", now, d.before)
	}
}

func (d *desk) screen() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown.String()
}

func TestShell(t *testing.T) {
	d := newDesk(t)
	d.run("shell", "11", "--user", "user", "--cwd", "/srv", "--env", "A=b")
	d.until("size 100x30\r\n")
	if now := d.settings(); now.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Errorf("the terminal is not in raw mode: %+v", now)
	}
	d.resize(132, 50)
	d.until("size 132x50\r\n")
	d.typeIn("hello\r")
	d.until(`typed "hello"` + "\r\n")
	d.typeIn("\x03\r") // goes there, and ends nothing here
	d.until(`typed "\x03"` + "\r\n")
	for typed, want := range map[string]string{
		"user\r": "user\r\n", "cwd\r": "/srv\r\n", "env A\r": "A is \"b\"\r\n",
		"env TERM\r": "TERM is \"\"\r\n", // it is one that sandboxes do not know
		"argv\r":     `argv ["/bin/sh" "-c" "exec \"${SHELL:-/bin/sh}\""]` + "\r\n",
		"~x\r":       `typed "~x"` + "\r\n", "a~.\r": `typed "a~."` + "\r\n",
	} {
		d.typeIn(typed)
		d.until(want)
	}
	d.typeIn("exit 7\r")
	d.end(7)
}

func TestShellOfAProgram(t *testing.T) {
	d := newDesk(t)
	t.Setenv("TERM", "screen")
	d.run("shell", "11", "--", "htop", "--tree")
	d.typeIn("argv\r")
	d.until(`argv ["htop" "--tree"]`)
	d.typeIn("env TERM\r")
	d.until(`TERM is "screen"`)
	d.typeIn("fall\r")
	d.end(129)
	d.until("ramet: the program was ended by SIGHUP\r\n")
}

func TestShellSendsEachKeyOnceOnAConnectionThatIsKept(t *testing.T) {
	d := newDesk(t)
	d.run("shell", "11")
	d.until("size 100x30")
	const n = 30
	for i := range n {
		d.typeIn("k")
		d.wait("the key is sent", func() bool { return d.requests["stdin"] > i }) // each by itself
	}
	d.typeIn("\r")
	d.until(`typed "` + strings.Repeat("k", n) + `"`)
	d.mu.Lock()
	if got := d.requests["stdin"]; got != n+1 {
		t.Errorf("%d keys took %d requests", n+1, got)
	}
	if d.conns > 4 { // the list of sandboxes, the stream, the keys
		t.Errorf("%d connections", d.conns)
	}
	d.mu.Unlock()
	d.typeIn("exit 0\r")
	d.end(0)
}

func TestShellGivesTheTerminalBack(t *testing.T) {
	sentence := regexp.MustCompile(`ramet: the shell in sbx_[0-9a-f]{32} is cut off: the connection was lost[^\r\n]*\r\n$`)
	for name, c := range map[string]struct {
		code int
		do   func(d *desk)
		say  *regexp.Regexp
	}{
		"the server cuts it off":  {125, func(d *desk) { d.typeIn("cut\r") }, sentence},
		"the connection breaks":   {125, func(d *desk) { d.srv.CloseClientConnections() }, sentence},
		"it is terminated":        {143, func(d *desk) { d.cmd.Process.Signal(syscall.SIGTERM) }, nil},
		"the window is closed":    {129, func(d *desk) { d.cmd.Process.Signal(syscall.SIGHUP) }, nil},
		"the person leaves":       {129, func(d *desk) { d.typeIn("\r"); d.until("typed \"\""); d.typeIn("~"); d.typeIn(".") }, regexp.MustCompile("ramet: left the shell in ")},
		"there is no such server": {125, nil, regexp.MustCompile("no server answers")},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if c.do == nil {
				d.srv.Close()
				d.run("shell", "11")
			} else {
				d.run("shell", "11")
				d.until("size 100x30")
				c.do(d)
			}
			d.end(c.code)
			if c.say != nil {
				d.wait(c.say.String(), func() bool { return c.say.MatchString(d.shown.String()) })
			}
			if n := strings.Count(d.screen(), "ramet: "); n > 1 {
				t.Errorf("it says %d things: %q", n, d.screen())
			}
		})
	}
}

// TestShellIsInterruptedWhileItConnects uses a server that takes connections and says nothing.
func TestShellIsInterruptedWhileItConnects(t *testing.T) {
	d := newDesk(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	asked := make(chan struct{})
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 1))
		close(asked)
		<-d.ended
	}()
	t.Setenv("RAMET_URL", "http://"+silent.Addr().String())
	t.Setenv("RAMET_API_KEY", "rmt_x")
	d.run("shell", "11")
	select {
	case <-asked:
	case <-time.After(commandDeadline):
		t.Fatal("nobody called")
	}
	d.typeIn("\x03")
	d.end(130)
}

func TestPanicGivesTheTerminalBack(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	restore, err := makeRaw(tty)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		guarded(restore, func() { panic("x") })
	}()
	if now, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || *now != *before {
		t.Errorf("%v: the terminal is %+v, was %+v", err, now, before)
	}
}

func TestKeysThatLeave(t *testing.T) {
	for _, c := range []struct {
		reads []string
		want  string
		left  bool
	}{
		{[]string{"~", "."}, "", true},
		{[]string{"x", "\r", "~", "."}, "x\r", true},
		{[]string{"x", "~", "."}, "x~.", false},
		{[]string{"~."}, "", true},
		{[]string{"~.x"}, "~.x", false}, // pasted
		{[]string{"ls\n~.\n"}, "ls\n~.\n", false},
		{[]string{"~", "~", "."}, "~.", false},
		{[]string{"~", "x"}, "~x", false},
		{[]string{"~", "\x1b[A"}, "~\x1b[A", false},
	} {
		k := &keys{in: &reads{c.reads}, fresh: true}
		var got []byte
		buf := make([]byte, 64)
		for {
			n, err := k.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				if errors.Is(err, errLeft) != c.left {
					t.Errorf("%q: %v", c.reads, err)
				}
				break
			}
		}
		if string(got) != c.want {
			t.Errorf("%q became %q, want %q", c.reads, got, c.want)
		}
	}
}

// reads is what single calls of Read return.
type reads struct{ left []string }

func (r *reads) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, os.ErrClosed
	}
	n := copy(p, r.left[0])
	r.left = r.left[1:]
	return n, nil
}
