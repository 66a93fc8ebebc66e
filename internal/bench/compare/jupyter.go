package compare

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/bench"
)

//go:embed kernel.py
var kernelPy []byte

// jupyterPackages come from PyPI, at versions that figures can be compared with.
var jupyterPackages = []string{"ipykernel==6.29.5", "jupyter_client==8.6.3"}

const (
	// endTimeout is how long a kernel may take to end by itself.
	endTimeout = 10 * time.Second
	// maxAnswer bounds a line of kernel.py, in bytes, and what is kept of what programs say.
	maxAnswer = 16 << 10
)

type jupyter struct{}

// open installs Jupyter's kernel into a virtual environment of its own and starts one.
func (jupyter) open(ctx context.Context) (_ bench.Probe, err error) {
	var undo cleaners
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run())
		}
	}()
	python, err := exec.LookPath("python3")
	if err != nil {
		return bench.Probe{}, unavailable(nil, "there is no python3; install it (Debian: python3 and python3-venv)")
	}
	dir, err := os.MkdirTemp("", "ramet-bench-jupyter-*")
	if err != nil {
		return bench.Probe{}, fmt.Errorf("make a place for Jupyter: %w", err)
	}
	undo.push(func() error { return os.RemoveAll(dir) })
	venv := filepath.Join(dir, "venv")
	if err := quietly(ctx, python, "-m", "venv", venv); err != nil {
		return bench.Probe{}, unavailable(err, "a Python environment could not be made; install python3-venv (Debian)")
	}
	pip := append([]string{"install", "--quiet", "--disable-pip-version-check"}, jupyterPackages...)
	if err := quietly(ctx, filepath.Join(venv, "bin", "pip"), pip...); err != nil {
		return bench.Probe{}, unavailable(err, "ipykernel and jupyter_client could not be installed with pip; it needs PyPI or a mirror of it")
	}
	k, err := startKernel(ctx, filepath.Join(venv, "bin", "python"), dir)
	if err != nil {
		return bench.Probe{}, err
	}
	undo.push(k.end)
	return bench.Probe{Once: k.call, Close: func(context.Context) error { return undo.run() }}, nil
}

// quietly runs a program; an error has the end of what it said.
func quietly(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	// Its children write files, too: they end with it, and hold the pipe until they have.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = endTimeout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, said)
	}
	return nil
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > maxAnswer {
		t.b = append(t.b[:0], t.b[len(t.b)-maxAnswer:]...)
	}
	return len(p), nil
}

// String returns the very last of it, for an error.
func (t *tail) String() string {
	all := t.all()
	return all[max(0, len(all)-300):]
}

func (t *tail) all() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// kernel is kernel.py with its Jupyter kernel.
type kernel struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *os.File
	answers *bufio.Scanner
	said    *tail
}

func startKernel(ctx context.Context, python, dir string) (*kernel, error) {
	script := filepath.Join(dir, "kernel.py")
	if err := os.WriteFile(script, kernelPy, 0o600); err != nil {
		return nil, fmt.Errorf("write the script of the kernel: %w", err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	// The kernel outlives ctx, which bounds its start; end ends it.
	k := &kernel{cmd: exec.Command(python, script), out: out, answers: bufio.NewScanner(out), said: &tail{}}
	k.answers.Buffer(nil, maxAnswer)
	k.cmd.Dir = dir
	// Nothing of the user's own Jupyter is read or written.
	k.cmd.Env = append(os.Environ(), "HOME="+dir, "IPYTHONDIR="+dir, "JUPYTER_CONFIG_DIR="+dir, "JUPYTER_DATA_DIR="+dir, "JUPYTER_RUNTIME_DIR="+dir, "JUPYTER_PLATFORM_DIRS=0")
	k.cmd.Stdout, k.cmd.Stderr = theirs, k.said
	// Ctrl-C is for this process, which ends the kernel in order.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k.cmd.WaitDelay = time.Second
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the kernel: %w", err), theirs.Close(), out.Close())
	}
	// While this end is open here, too, the end of the script is not seen.
	if err := errors.Join(k.cmd.Start(), theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start the kernel: %w", err), out.Close())
	}
	var first struct {
		Ready bool `json:"ready"`
	}
	if err := k.read(ctx, &first); err != nil || !first.Ready {
		return nil, errors.Join(fmt.Errorf("start the kernel: %w", err), k.end())
	}
	return k, nil
}

// read decodes the next answer.
func (k *kernel) read(ctx context.Context, v any) error {
	stop := context.AfterFunc(ctx, func() {
		_ = k.out.SetReadDeadline(time.Unix(1, 0)) // a pipe takes deadlines
	})
	defer stop()
	if !k.answers.Scan() {
		err := k.answers.Err()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("no answer: %w: %s", err, k.said)
	}
	return json.Unmarshal(k.answers.Bytes(), v)
}

// call measures one print(1).
func (k *kernel) call(ctx context.Context) (bench.Sample, error) {
	if _, err := io.WriteString(k.in, "\n"); err != nil {
		return bench.Sample{}, fmt.Errorf("ask the kernel: %w", err)
	}
	var answer struct {
		TookMS float64 `json:"took_ms"`
		Error  string  `json:"error"`
	}
	if err := k.read(ctx, &answer); err != nil {
		return bench.Sample{}, fmt.Errorf("ask the kernel: %w", err)
	}
	if answer.Error != "" {
		return bench.Sample{}, errors.New(answer.Error)
	}
	return bench.Sample{Took: time.Duration(answer.TookMS * float64(time.Millisecond))}, nil
}

// end ends the kernel, the hard way when it does not do so by itself. A kernel
// whose script is gone ends on its own.
func (k *kernel) end() error {
	err := k.in.Close()
	kill := time.AfterFunc(endTimeout, func() { _ = k.cmd.Process.Kill() }) // it may have ended just now
	werr := k.cmd.Wait()
	kill.Stop()
	if werr != nil {
		werr = fmt.Errorf("end the kernel: %w: %s", werr, k.said)
	}
	return errors.Join(err, werr, k.out.Close())
}
