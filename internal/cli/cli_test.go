package cli

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ramet": func() {
			os.Exit(Main(Options{
				Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
				Engine: clitest.Engine{}, Version: "1.2.3-test",
			}))
		},
	})
}

// fakeServer is the key of a script's server.
type fakeServer struct{}

// TestScripts runs the command line as a user does, each script against a
// server of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			files, home := filepath.Join(env.WorkDir, ".files"), filepath.Join(env.WorkDir, "data")
			for _, dir := range []string{files, home} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			fake := clitest.New(files)
			env.Values[fakeServer{}] = fake
			srv := httptest.NewServer(fake.Handler())
			env.Defer(srv.Close)
			env.Defer(srv.CloseClientConnections)
			if err := os.WriteFile(filepath.Join(home, "key"), []byte(clitest.Key+"\n"), 0o600); err != nil {
				return err
			}
			// This process is the server whose key the commands may use.
			info, err := config.ThisProcess(srv.URL, "1.2.3-test")
			if err != nil {
				return err
			}
			if err := info.Write(config.Home(home)); err != nil {
				return err
			}
			env.Setenv("RAMET_URL", srv.URL)
			env.Setenv("RAMET_HOME", home)
			env.Setenv("HOME", env.WorkDir)
			// Programs built with the race detector else sleep for a second at their end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			// The root directory of the first sandbox, whose id is foretold.
			env.Setenv("FILES", filepath.Join(files, "sbx_"+strings.Repeat("1", 30)+"01"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// freeze makes Spaces of all persistent sandboxes.
			"freeze": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Value(fakeServer{}).(*clitest.Server).Freeze()
			},
			"code":      scriptCode,
			"interrupt": scriptInterrupt,
			"certificate": func(ts *testscript.TestScript, _ bool, args []string) {
				scriptCertificate(ts, args[0], args[1:])
			},
			"urlof": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := config.ReadServerInfo(config.Home(args[0]))
				ts.Check(err)
				ts.Setenv("RAMET_URL", info.URL)
			},
			"swapcert": func(ts *testscript.TestScript, _ bool, args []string) { scriptSwapCertificate(ts, ts.MkAbs(args[0])) },
			"stopserver": func(ts *testscript.TestScript, _ bool, _ []string) {
				// What is left of a detached server when a script fails must not outlive it.
				ts.Defer(func() {
					cmd := exec.Command("ramet", "down", "--data", ts.Getenv("RAMET_HOME"))
					cmd.Env = append(os.Environ(), "RAMET_HOME="+ts.Getenv("RAMET_HOME"))
					if out, err := cmd.CombinedOutput(); err != nil {
						ts.Logf("down: %v: %s", err, out)
					}
				})
			},
		},
	})
}

// commandDeadline bounds every command that the helpers below start.
const commandDeadline = 30 * time.Second

// scriptCode runs a command and checks its exit code: code N cmd args...
// Its output is left in the files "out" and "err".
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N cmd args...")
	}
	got := runWith(ts, args[1:], nil)
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("%s: exit code %d, not %s\nstdout:\n%s\nstderr:\n%s", strings.Join(args[1:], " "), got, args[0],
			ts.ReadFile("out"), ts.ReadFile("err"))
	}
}

// scriptInterrupt runs a command, sends SIGINT each time that its output shows
// the next of some texts, and checks its exit code:
// interrupt N text... -- cmd args...
func scriptInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	dash := -1
	for i, a := range args {
		if a == "--" {
			dash = i
			break
		}
	}
	if neg || dash < 2 || dash == len(args)-1 {
		ts.Fatalf("usage: interrupt N text... -- cmd args...")
	}
	got := runWith(ts, args[dash+1:], args[1:dash])
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("%s: exit code %d, not %s\nstdout:\n%s\nstderr:\n%s", strings.Join(args[dash+1:], " "), got, args[0],
			ts.ReadFile("out"), ts.ReadFile("err"))
	}
}

// watch collects output and says when it holds the next of some texts.
type watch struct {
	mu    sync.Mutex
	all   bytes.Buffer
	texts []string
	seen  func()
}

func (w *watch) note(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	for len(w.texts) > 0 && strings.Contains(w.all.String(), w.texts[0]) {
		w.texts = w.texts[1:]
		w.seen()
	}
}

// tee writes to a buffer and shows a watch what was written.
type tee struct {
	buf *bytes.Buffer
	w   *watch
}

func (t tee) Write(p []byte) (int, error) {
	t.buf.Write(p)
	t.w.note(p)
	return len(p), nil
}

func runWith(ts *testscript.TestScript, args, texts []string) int {
	var stdout, stderr bytes.Buffer
	path := args[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		ts.Check(err)
		path = found
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "RAMET_URL", "RAMET_HOME", "RAMET_API_KEY", "RAMET_CA", "RAMET_TEST_FAIL", "RAMET_LISTEN", "RAMET_CONFIG", "MINE", "GORACE", "WORK", "TMPDIR"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	w := &watch{texts: texts}
	w.seen = func() { cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stdout, cmd.Stderr = tee{&stdout, w}, tee{&stderr, w}
	cmd.WaitDelay = commandDeadline
	ts.Check(cmd.Start())
	killed := time.AfterFunc(commandDeadline, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !killed.Stop() {
		ts.Fatalf("%s: still ran after %s\nstdout:\n%s\nstderr:\n%s", strings.Join(args, " "), commandDeadline, &stdout, &stderr)
	}
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), stdout.Bytes(), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr.Bytes(), 0o644))
	return cmd.ProcessState.ExitCode()
}
