package controltest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
)

// agent is a fake guest's agent.
type agent struct {
	agentv1connect.UnimplementedMachineHandler
	root string
	env  map[string]string

	tasks    sync.WaitGroup
	mu       sync.Mutex
	runs     map[string]*run    // guarded by mu
	contexts []*agentv1.Context // guarded by mu
}

func newAgent(root string, env map[string]string) *agent {
	first := &agentv1.Context{Id: "default", Language: "python", Cwd: "/root", Running: true}
	return &agent{root: root, env: env, runs: make(map[string]*run), contexts: []*agentv1.Context{first}}
}

// Hello answers.
func (a *agent) Hello(context.Context, *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	return &agentv1.HelloResponse{Protocol: 1, AgentVersion: "fake"}, nil
}

// Metrics answers with made-up figures.
func (a *agent) Metrics(context.Context, *agentv1.MetricsRequest) (*agentv1.MetricsResponse, error) {
	return &agentv1.MetricsResponse{MemoryTotalBytes: 1 << 30, MemoryAvailableBytes: 1 << 29, DiskTotalBytes: 4 << 30, DiskFreeBytes: 3 << 30, Processes: 42}, nil
}

func (a *agent) running() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.runs {
		if !r.ended() {
			n++
		}
	}
	return n
}

func (a *agent) killAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		r.signal(syscall.SIGKILL)
	}
}

func (a *agent) wait() { a.tasks.Wait() }

// run is one run with its journal.
type run struct {
	began chan struct{} // closed when the start is in the journal
	info  *agentv1.RunInfo
	cmd   *exec.Cmd
	stdin io.WriteCloser
	term  *terminal // nil: pipes

	mu      sync.Mutex
	journal []*agentv1.Event // guarded by mu
	more    chan struct{}    // guarded by mu; closed when the journal grows
	timeout bool             // guarded by mu
	interr  bool             // guarded by mu
}

func (r *run) add(e *agentv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Seq = uint64(len(r.journal))
	r.journal = append(r.journal, e)
	close(r.more)
	r.more = make(chan struct{})
}

func (r *run) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.journal) > 0 && r.journal[len(r.journal)-1].GetExit() != nil
}

func (r *run) signal(sig syscall.Signal) {
	if r.ended() || r.cmd.Process == nil { // over, or it could not be started
		return
	}
	r.mu.Lock()
	r.interr = r.interr || sig == syscall.SIGINT
	r.mu.Unlock()
	_ = syscall.Kill(-r.cmd.Process.Pid, sig) // ESRCH: it has ended
}

// out is a writer into the journal.
type out struct {
	r      *run
	stderr bool
}

func (o out) Write(p []byte) (int, error) {
	<-o.r.began // output comes behind the event that says that it began
	b := slices.Clone(p)
	if o.stderr {
		o.r.add(&agentv1.Event{Kind: &agentv1.Event_Stderr{Stderr: b}})
	} else {
		o.r.add(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: b}})
	}
	return len(p), nil
}

type execService struct {
	agentv1connect.UnimplementedExecHandler
	a *agent
}

// Run runs bash, or a new Python for each call, also in contexts.
func (s execService) Run(ctx context.Context, req *agentv1.RunRequest, stream *connect.ServerStream[agentv1.Event]) error {
	if req.Context != "" {
		c, err := s.findContext(req.Context)
		if err != nil {
			return err
		}
		if req.Language != "" && req.Language != c.Language {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("context "+c.Id+" runs "+c.Language))
		}
		req.Language = c.Language
	}
	argv := []string{"bash", "-c", req.Code}
	switch req.Language {
	case "python":
		argv = []string{"python3", "-"}
	case "javascript":
		argv = []string{"node", "-e", req.Code}
	}
	r, err := s.start(&agentv1.StartRequest{
		Argv: argv, Env: req.Env, Cwd: req.Cwd, User: req.User, TimeoutMillis: req.TimeoutMillis, RunId: req.RunId,
	}, req.Language, req.Code)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.info.Context = req.Context
	r.mu.Unlock()
	return r.send(ctx, 0, stream)
}

// Start starts a program.
func (s execService) Start(ctx context.Context, req *agentv1.StartRequest, stream *connect.ServerStream[agentv1.Event]) error {
	r, err := s.start(req, "", "")
	if err != nil {
		return err
	}
	return r.send(ctx, 0, stream)
}

func (s execService) start(req *agentv1.StartRequest, language, code string) (*run, error) {
	cmd := exec.Command(req.Argv[0], req.Argv[1:]...)
	cmd.Dir = filepath.Join(s.a.root, "root", req.Cwd)
	env := maps.Clone(s.a.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	r := &run{cmd: cmd, began: make(chan struct{}), more: make(chan struct{}), info: &agentv1.RunInfo{
		RunId: req.RunId, Argv: req.Argv, Language: language, StartedUnixMillis: time.Now().UnixMilli(),
		Tag: req.Tag, Pty: req.Pty != nil, Env: req.Env, Cwd: path.Join("/root", req.Cwd), User: cmp.Or(req.User, "root"), Detached: req.Detach,
	}}
	cmd.Stdout, cmd.Stderr = out{r: r}, out{r: r, stderr: true}
	if language == "python" {
		cmd.Stdin = strings.NewReader(code)
	}
	if req.Pty != nil {
		var err error
		if r.term, err = openTerminal(cmd, req.Pty); err != nil {
			return nil, err
		}
		defer r.term.theirs.Close()
		r.stdin = typist{r.term}
		cmd.Env = append([]string{"TERM=xterm-256color"}, cmd.Env...)
	} else if req.Stdin {
		var err error
		if r.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	// Whoever finds the run may signal it, so it is entered when it has its process.
	s.a.mu.Lock()
	err := cmd.Start()
	if err == nil {
		r.info.Pid = int32(cmd.Process.Pid)
	}
	s.a.runs[req.RunId] = r
	s.a.mu.Unlock()
	defer close(r.began)
	if err != nil {
		if r.term != nil {
			r.term.close()
		}
		r.add(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{
			Code: 127, Reason: agentv1.Reason_START_FAILED, Message: "there is no program " + req.Argv[0],
		}}})
		return r, nil
	}
	r.add(&agentv1.Event{Kind: &agentv1.Event_Started{Started: &agentv1.Started{Pid: r.info.Pid, RunId: req.RunId}}})
	if r.term != nil {
		s.a.tasks.Go(func() { r.term.follow(out{r: r}) })
	}
	s.a.tasks.Go(func() { r.finish(time.Duration(req.TimeoutMillis) * time.Millisecond) })
	return r, nil
}

func (r *run) finish(timeout time.Duration) {
	if timeout > 0 {
		t := time.AfterFunc(timeout, func() {
			r.mu.Lock()
			r.timeout = true
			r.mu.Unlock()
			r.signal(syscall.SIGINT)
		})
		defer t.Stop()
	}
	begin := time.Now()
	_ = r.cmd.Wait() // its state says all
	if r.term != nil {
		r.term.drain()
	}
	exit := &agentv1.Exit{Reason: agentv1.Reason_EXITED, Code: int32(r.cmd.ProcessState.ExitCode()), Micros: time.Since(begin).Microseconds()}
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Signal = int32(ws.Signal())
		exit.Code, exit.Reason, exit.Message = 128+exit.Signal, agentv1.Reason_SIGNALED, "it was ended by "+ws.Signal().String()
	}
	r.mu.Lock()
	switch {
	case r.timeout:
		exit.Reason, exit.Message = agentv1.Reason_TIMEOUT, "it ran into its time limit"
	case r.interr && exit.Signal == int32(syscall.SIGINT):
		exit.Reason = agentv1.Reason_INTERRUPTED
	}
	r.mu.Unlock()
	r.add(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: exit}})
}

// send follows the journal.
func (r *run) send(ctx context.Context, from uint64, stream *connect.ServerStream[agentv1.Event]) error {
	for {
		r.mu.Lock()
		more := r.more
		events := r.journal[min(from, uint64(len(r.journal))):]
		r.mu.Unlock()
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
			from++
			if e.GetExit() != nil {
				return nil
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s execService) find(id string) (*run, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if r, ok := s.a.runs[id]; ok {
		return r, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("process not found"))
}

// Attach follows a run.
func (s execService) Attach(ctx context.Context, req *agentv1.AttachRequest, stream *connect.ServerStream[agentv1.Event]) error {
	r, err := s.find(req.RunId)
	if err != nil {
		return err
	}
	from := req.FromSeq
	if req.Latest {
		r.mu.Lock()
		from = uint64(len(r.journal))
		if from > 0 && r.journal[from-1].GetExit() != nil {
			from--
		}
		r.mu.Unlock()
		if err := stream.Send(&agentv1.Event{Kind: &agentv1.Event_KeepAlive{KeepAlive: &agentv1.KeepAlive{}}}); err != nil {
			return err
		}
	}
	return r.send(ctx, from, stream)
}

// Input writes to standard input.
func (s execService) Input(_ context.Context, stream *connect.ClientStream[agentv1.InputRequest]) (*agentv1.InputResponse, error) {
	var n uint64
	for stream.Receive() {
		m := stream.Msg()
		r, err := s.find(m.RunId)
		if err != nil {
			return nil, err
		}
		if r.stdin == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the program was started without stdin"))
		}
		w, err := 0, error(nil)
		if len(m.Data) > 0 { // the first and the last message have none, and the program may have ended before that
			w, err = r.stdin.Write(m.Data)
		}
		n += uint64(w)
		if err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the program has closed its standard input"))
		}
		if m.Eof {
			if err := r.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				return nil, err
			}
		}
	}
	return &agentv1.InputResponse{Bytes: n}, stream.Err()
}

// Signal signals a run.
func (s execService) Signal(_ context.Context, req *agentv1.SignalRequest) (*agentv1.SignalResponse, error) {
	r, err := s.find(req.RunId)
	if err != nil {
		return nil, err
	}
	r.signal(syscall.Signal(req.Signal))
	return &agentv1.SignalResponse{}, nil
}

// List lists runs.
func (s execService) List(context.Context, *agentv1.ListRequest) (*agentv1.ListResponse, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	res := &agentv1.ListResponse{}
	for _, r := range s.a.runs {
		r.mu.Lock()
		info := proto.CloneOf(r.info)
		info.NextSeq = uint64(len(r.journal))
		if n := len(r.journal); n > 0 {
			info.Exit = r.journal[n-1].GetExit()
		}
		r.mu.Unlock()
		res.Runs = append(res.Runs, info)
	}
	return res, nil
}
