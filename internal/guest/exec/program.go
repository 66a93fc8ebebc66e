package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/reap"
)

// Exit codes of programs that could not be started, as shells give them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// program is what a run of a process is made from.
type program struct {
	argv    []string
	file    string // the program; empty: found by argv[0]
	env     map[string]string
	cwd     string // empty: the user's home
	user    string // empty: root
	stdin   bool
	pty     *agentv1.PtySize // nil: no terminal
	timeout time.Duration
	files   []*os.File // descriptors 3 and up
}

// startError says why a program could not be started.
type startError struct {
	code    int32
	message string
}

func (e *startError) Error() string { return e.message }

func startFailed(code int32, format string, args ...any) *startError {
	return &startError{code, fmt.Sprintf(format, args...)}
}

// maxArgument is the most bytes of code that go to bash as an argument; the
// kernel's limit for one argument is 128 KiB.
const maxArgument = 120 << 10

func (s *Service) runBash(ctx context.Context, req *agentv1.RunRequest, out *connect.ServerStream[agentv1.Event]) error {
	if strings.ContainsRune(req.GetCode(), 0) {
		return invalid("the code contains a NUL byte")
	}
	p := &program{
		argv: []string{"bash", "-c", req.GetCode()}, file: s.cfg.Bash, env: req.GetEnv(), cwd: req.GetCwd(), user: req.GetUser(),
		timeout: time.Duration(req.GetTimeoutMillis()) * time.Millisecond,
	}
	if len(req.GetCode()) > maxArgument {
		// Descriptor 3 is closed before the code runs, so that it is like -c.
		file, err := memoryFile("code", req.GetCode())
		if err != nil {
			return err
		}
		defer file.Close()
		p.argv[2] = `eval "exec 3<&-;$(</dev/fd/3)"`
		p.files = []*os.File{file}
	}
	r, err := s.newRun(req.GetRunId(), "bash", nil, false)
	if err != nil {
		return err
	}
	s.launch(r, p)
	return s.stream(ctx, r, 0, out)
}

// memoryFile returns an anonymous file with the content.
func memoryFile(name, content string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteString(content); err != nil {
		f.Close()
		return nil, fmt.Errorf("fill memory file: %w", err)
	}
	return f, nil
}

// launch starts a program for a run. Whatever goes wrong becomes the run's
// Exit; after launch the run always ends by itself.
func (s *Service) launch(r *run, p *program) {
	if !s.enter() {
		r.finish(&agentv1.Exit{Code: 1, Reason: agentv1.Reason_START_FAILED, Message: "the agent is shutting down"})
		return
	}
	e := &execution{s: s, r: r, exited: make(chan struct{})}
	if err := e.start(p); err != nil {
		s.work.Done()
		exit := &agentv1.Exit{Code: codeNotExecutable, Reason: agentv1.Reason_START_FAILED, Message: err.Error()}
		var se *startError
		if errors.As(err, &se) {
			exit.Code = se.code
		} else {
			s.log.Error("start program", "run", r.id, "error", err)
		}
		r.finish(exit)
	}
}

// execution is a running program: its process, its pipes and its time limit.
type execution struct {
	s      *Service
	r      *run
	proc   *reap.Process
	out    *outputs
	kill   func(unix.Signal) error // signals the program
	oomWas uint64
	exited chan struct{} // closed when watch has seen the process's end

	mu       sync.Mutex
	timedOut bool
	limit    *time.Timer
	over     bool // the limit must not start again
}

func (e *execution) start(p *program) (err error) {
	user, err := e.s.cfg.Users.Lookup(p.user)
	if errors.Is(err, ErrNoUser) {
		return startFailed(codeNotExecutable, "there is no user %q", p.user)
	} else if err != nil {
		return err
	}
	cmd, err := e.s.command(p, user)
	if err != nil {
		return err
	}
	e.r.place(p.env, cmd.Dir, user.Name)
	streams, err := e.open(cmd, p, user)
	if err != nil {
		return err
	}
	defer streams.closeTheirs()
	e.oomWas = e.s.oom.read()
	var spare string
	e.proc, spare, err = e.s.startInCgroup(cmd)
	if err != nil {
		streams.closeOurs()
		return describeStart(err, p, cmd)
	}
	e.out, e.kill = streams.out, e.proc.SignalGroup
	if t := streams.term; t != nil {
		e.kill = func(sig unix.Signal) error { return e.signalTerminal(t, sig) }
	}
	e.r.mu.Lock()
	e.r.stdin, e.r.had, e.r.term = streams.stdin, streams.stdin != nil, streams.term
	if streams.term == nil {
		e.r.alone = e.proc.EndGroup
	}
	e.r.mu.Unlock()
	e.r.begin(e.proc.Pid, e.kill)
	if p.pty != nil {
		e.r.stdout([]byte(onTerminal(spare)))
	} else {
		e.r.stderr([]byte(spare))
	}
	if p.timeout > 0 {
		e.mu.Lock()
		e.limit = time.AfterFunc(p.timeout, func() { e.timeout(p.pty != nil) })
		e.mu.Unlock()
	}
	go e.watch()
	e.s.work.Add(1) // the caller still holds one for watch
	go e.read()
	return nil
}

// streams are the standard streams of a program that is about to start.
type streams struct {
	out    *outputs
	stdin  *os.File  // our end; nil: none
	term   *terminal // whose master stdin is; nil: pipes
	theirs []*os.File
}

// closeTheirs closes what the program has by now.
func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		f.Close()
	}
}

// closeOurs closes our ends, when there is no program.
func (s *streams) closeOurs() {
	s.out.close()
	if s.stdin != nil {
		s.stdin.Close()
	}
}

// open gives a command its standard streams: pipes, or a terminal.
func (e *execution) open(cmd *exec.Cmd, p *program, user *User) (*streams, error) {
	if p.pty != nil {
		term, fd, slave, err := openTerminal(p.pty, user.UID)
		if err != nil {
			return nil, err
		}
		out, err := terminalOutputs(fd, slave)
		if err != nil {
			term.master.Close()
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0 // its descriptor 0
		return &streams{out: out, stdin: term.master, term: term}, nil
	}
	out, stdout, stderr, err := newOutputs()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	s := &streams{out: out, theirs: []*os.File{stdout, stderr}}
	if s.stdin, err = e.openStdin(cmd, p.stdin); err != nil {
		s.closeTheirs()
		s.closeOurs()
		return nil, err
	}
	if file, ok := cmd.Stdin.(*os.File); ok {
		s.theirs = append(s.theirs, file)
	}
	return s, nil
}

// openStdin gives the command its standard input and returns our end of it, if
// it is a pipe. Only our end is non-blocking.
func (e *execution) openStdin(cmd *exec.Cmd, pipe bool) (*os.File, error) {
	if !pipe {
		return nil, nil // os/exec opens /dev/null
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	cmd.Stdin = os.NewFile(uintptr(fds[0]), "stdin")
	return os.NewFile(uintptr(fds[1]), "stdin"), nil
}

// command builds the command: program, directory, environment and identity.
func (s *Service) command(p *program, user *User) (*exec.Cmd, error) {
	cwd := p.cwd
	switch {
	case cwd == "":
		cwd = user.Home
		if info, err := os.Stat(cwd); err != nil || !info.IsDir() {
			cwd = "/" // as login does
		}
	case !filepath.IsAbs(cwd):
		cwd = filepath.Join(user.Home, cwd)
	}
	if info, err := os.Stat(cwd); err != nil {
		return nil, startFailed(codeNotExecutable, "there is no directory %s", cwd)
	} else if !info.IsDir() {
		return nil, startFailed(codeNotExecutable, "%s is not a directory", cwd)
	}
	base := baseEnv(user)
	if p.pty != nil {
		base["TERM"] = defaultTerm
	}
	env := environ(base, s.extraEnv(), p.env)
	name := p.file
	if name == "" {
		name = p.argv[0]
	}
	file, err := findProgram(name, lookupEnv(env, "PATH"), cwd)
	if errors.Is(err, unix.EACCES) {
		return nil, startFailed(codeNotExecutable, "%s is not executable", name)
	} else if err != nil {
		return nil, startFailed(codeNotFound, "there is no program %s", name)
	}
	cmd := &exec.Cmd{
		Path: file, Args: p.argv, Env: env, Dir: cwd, ExtraFiles: p.files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if user.UID != uint32(os.Getuid()) || user.GID != uint32(os.Getgid()) || len(user.Groups) > 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	}
	return cmd, nil
}

// describeStart turns what execve said into a sentence.
func describeStart(err error, p *program, cmd *exec.Cmd) error {
	name := p.argv[0]
	switch {
	case errors.Is(err, unix.ENOENT):
		return startFailed(codeNotFound, "cannot start %s: its interpreter or loader does not exist", name)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return startFailed(codeNotExecutable, "cannot start %s in %s: permission denied", name, cmd.Dir)
	case errors.Is(err, unix.ENOEXEC):
		return startFailed(codeNotExecutable, "cannot start %s: it is neither a program for this machine nor a script with a #! line", name)
	case errors.Is(err, errTooMany):
		return startFailed(codeNotExecutable, "cannot start %s: %v", name, errTooMany)
	case errors.Is(err, unix.E2BIG):
		return startFailed(codeNotExecutable, "cannot start %s: arguments and environment are too long", name)
	}
	return startFailed(codeNotExecutable, "cannot start %s: %v", name, err)
}

// timeout interrupts the process group, and kills it when that does not help. What has taken no
// notice of the interrupt, as what a shell has put in the background, ends with the program. A
// terminal is hung up instead: shells take no notice of an interrupt.
func (e *execution) timeout(hangUp bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	e.timedOut = true
	first := unix.SIGINT
	if hangUp {
		first = unix.SIGHUP
	}
	e.r.endGroup()
	_ = e.kill(first) // it may have ended just now
	e.limit = time.AfterFunc(e.s.cfg.KillGrace, func() { _ = e.kill(unix.SIGKILL) })
}

// watch waits for the process.
func (e *execution) watch() {
	defer e.s.work.Done()
	select {
	case <-e.proc.Done():
	case <-e.s.stop:
		_ = e.kill(unix.SIGKILL)
		<-e.proc.Done()
	}
	close(e.exited)
	e.out.poller.wake()
}

// read passes on output until the process has ended and its pipes are empty,
// writes the Exit, and drops what comes later.
func (e *execution) read() {
	defer e.s.work.Done()
	defer e.out.close()
	e.out.run(e.s.cfg.DrainQuiet, e.s.cfg.DrainMax, e.r)
	<-e.exited
	e.mu.Lock()
	e.over = true
	timedOut := e.timedOut
	if e.limit != nil {
		e.limit.Stop()
	}
	e.mu.Unlock()
	status, _, err := e.proc.Wait(context.Background()) // it has ended
	if err != nil {
		e.s.log.Error("wait for program", "run", e.r.id, "error", err)
	}
	e.r.finish(e.exit(status, timedOut))
	e.out.discard(e.s.stop)
}

// exit says how the process ended.
func (e *execution) exit(status unix.WaitStatus, timedOut bool) *agentv1.Exit {
	exit := exitOf(status)
	killed := exit.Code == 128+int32(unix.SIGKILL)
	switch {
	case timedOut:
		exit.Reason = agentv1.Reason_TIMEOUT
		exit.Message = "the program was stopped at its time limit"
	case killed && e.s.oom.read() > e.oomWas:
		exit.Reason = agentv1.Reason_OUT_OF_MEMORY
		exit.Message = "the machine ran out of memory and the kernel killed the program"
	}
	return exit
}

// exitOf turns the kernel's status into an Exit.
func exitOf(status unix.WaitStatus) *agentv1.Exit {
	if status.Signaled() {
		sig := status.Signal()
		return &agentv1.Exit{
			Code: 128 + int32(sig), Signal: int32(sig), Reason: agentv1.Reason_SIGNALED,
			Message: fmt.Sprintf("the program was ended by %s", unix.SignalName(sig)),
		}
	}
	return &agentv1.Exit{Code: int32(status.ExitStatus()), Reason: agentv1.Reason_EXITED}
}
