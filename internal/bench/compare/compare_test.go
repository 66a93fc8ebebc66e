package compare

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/bench"
)

// TestAllSayWhatIsMissing runs them on a host that has nothing.
func TestAllSayWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	measured := map[string]bool{}
	for _, b := range bench.Benchmarks() {
		measured[b.Name] = true
	}
	for _, c := range All("")(bench.FloorConfig{}) {
		_, err := c.Open(t.Context())
		var missing *bench.UnavailableError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "install it (Debian: ") {
			t.Errorf("%s: error %v", c.Name, err)
		}
		if !measured[c.Beside] || measured[c.Name] || c.About == "" || c.Default < 1 || c.Max < c.Default {
			t.Errorf("%+v", c)
		}
	}
}

// program puts a shell script into the path.
func program(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return path
}

func TestJupyterWithoutPyPI(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	// An environment whose pip reaches nothing.
	program(t, "python3", `mkdir -p "$3/bin"
printf '#!/bin/sh\necho no route to anywhere >&2\nexit 1\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
`)
	_, err := jupyter{}.open(t.Context())
	var missing *bench.UnavailableError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "PyPI") || !strings.Contains(err.Error(), "no route to anywhere") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestJupyterInterrupted ends the children of what it installs with, so that none
// of them writes into what is removed.
func TestJupyterInterrupted(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, "python3", `sh -c 'while mkdir -p "$0/x"; do :; done' "$3" &
echo writing > `+pipe+`
wait
`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if said, err := os.ReadFile(pipe); err != nil || string(said) != "writing\n" {
			t.Errorf("the script said %q, error %v", said, err)
		}
		cancel()
	})
	if _, err := (jupyter{}).open(ctx); err == nil {
		t.Error("no error")
	}
	waiting.Wait()
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// fakeJupyter stands in for jupyter_client: it answers as its protocol does,
// with messages of other calls in between.
const fakeJupyter = `
import time

class Client:
    calls = 0
    def execute(self, code):
        assert code == "print(1)"
        self.calls += 1
        self.id = f"call-{self.calls}"
        if self.calls == 4:
            time.sleep(600)
        text, ok = ("2\n", "ok") if self.calls == 2 else ("", "error") if self.calls == 3 else ("1\n", "ok")
        m = lambda kind, parent, **content: {"msg_type": kind, "parent_header": {"msg_id": parent}, "content": content}
        self.iopub = [
            m("status", "other", execution_state="idle"), m("status", self.id, execution_state="busy"),
            m("stream", "other", text="x"), m("stream", self.id, text=text), m("status", self.id, execution_state="idle"),
        ]
        self.shell = [m("execute_reply", "other", status="ok"), m("execute_reply", self.id, status=ok)]
        return self.id
    def get_iopub_msg(self, timeout):
        return self.iopub.pop(0)
    def get_shell_msg(self, timeout):
        return self.shell.pop(0)
    def stop_channels(self):
        pass

class Manager:
    def shutdown_kernel(self, now):
        open("ended", "w").close()

def start_new_kernel(startup_timeout):
    return Manager(), Client()
`

func kernelIn(t *testing.T) (*kernel, string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "jupyter_client"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jupyter_client", "manager.py"), []byte(fakeJupyter), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := startKernel(t.Context(), python, dir)
	if err != nil {
		t.Fatal(err)
	}
	return k, dir
}

func TestKernel(t *testing.T) {
	k, dir := kernelIn(t)
	if s, err := k.call(t.Context()); err != nil || s.Took <= 0 || s.Took > time.Minute {
		t.Errorf("%v, error %v", s, err)
	}
	if _, err := k.call(t.Context()); err == nil || !strings.Contains(err.Error(), `printed '2\n'`) {
		t.Errorf("a wrong answer: %v", err)
	}
	if _, err := k.call(t.Context()); err == nil || !strings.Contains(err.Error(), "answered error") {
		t.Errorf("an error: %v", err)
	}
	if err := k.end(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("the kernel was not ended in order: %v", err)
	}
}

// TestKernelThatHangs ends a call with its context, and the script with it.
func TestKernelThatHangs(t *testing.T) {
	k, _ := kernelIn(t)
	for range 3 {
		k.call(t.Context())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("ctrl-c")
	time.AfterFunc(10*time.Millisecond, func() { cancel(stop) })
	if _, err := k.call(ctx); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if err := k.cmd.Process.Kill(); err != nil { // as end does after its time
		t.Error(err)
	}
	if err := k.end(); err == nil {
		t.Error("a killed script ended well")
	}
}

func TestKernelThatDoesNotStart(t *testing.T) {
	if _, err := startKernel(t.Context(), program(t, "python", "echo it is broken >&2; exit 3\n"), t.TempDir()); err == nil || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("error %v", err)
	}
}

func TestContainer(t *testing.T) {
	for name, c := range map[string]struct{ script, err string }{
		"it works":          {"echo 1\n", ""},
		"it prints another": {"echo 2\n", "printed"},
		"it fails":          {"echo no such namespace >&2; exit 1\n", "no such namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bundle{crun: program(t, "crun", c.script), dir: t.TempDir(), run: (*exec.Cmd).Run}
			s, err := b.once(t.Context())
			if c.err == "" && (err != nil || s.Took <= 0) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, error %v", s, err)
			}
		})
	}
}

// TestContainerInterrupted removes the container of a crun that was killed.
func TestContainerInterrupted(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	b := &bundle{dir: dir, run: (*exec.Cmd).Run, crun: program(t, "crun", `echo "$@" >> `+calls+"\n"+`case "$*" in *run*--bundle*) exec sleep 600;; esac`)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.once(ctx); err == nil {
		t.Error("no error")
	}
	said, err := os.ReadFile(calls)
	if err != nil || !strings.Contains(string(said), "delete --force ramet-bench-1\n") {
		t.Errorf("calls: %s, %v", said, err)
	}
}

// TestContainerHasNoRights looks at what the description allows.
func TestContainerHasNoRights(t *testing.T) {
	raw, err := json.Marshal(ociSpec())
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Process struct {
			Args            []string
			NoNewPrivileges bool
			Capabilities    map[string][]string
		}
		Root  struct{ Readonly bool }
		Linux struct{ Namespaces []struct{ Type string } }
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	if !spec.Process.NoNewPrivileges || len(spec.Process.Capabilities) > 0 || !spec.Root.Readonly || !slices.Equal(spec.Process.Args, []string{"python3", "-c", "print(1)"}) {
		t.Errorf("%s", raw)
	}
	var kinds []string
	for _, n := range spec.Linux.Namespaces {
		kinds = append(kinds, n.Type)
	}
	for _, want := range []string{"pid", "mount", "network", "ipc", "uts"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s namespace in %v", want, kinds)
		}
	}
}
