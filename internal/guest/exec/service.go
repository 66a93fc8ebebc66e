package exec

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/reap"
)

var _ agentv1connect.ExecHandler = (*Service)(nil)

// Config says how a Service works. Zero values mean the stated defaults.
type Config struct {
	Reaper *reap.Reaper // required; starts every child
	Logger *slog.Logger // required

	// Cgroup is the directory of the cgroup (version 2) of user processes.
	// Empty: processes stay in the agent's.
	Cgroup string
	// MainCgroup and SpareCgroup are the directories of two groups below Cgroup. Processes
	// are started in the first and, while that has no room for one, in the other.
	// Empty: in Cgroup.
	MainCgroup, SpareCgroup string
	// Python is the interpreter. Default: /usr/bin/python3.
	Python string
	// PythonEnv is added to the environment of the interpreter alone.
	PythonEnv map[string]string
	// Node runs JavaScript. Default: /usr/bin/node.
	Node string
	// Bash is the shell for language "bash". Default: /bin/bash.
	Bash string
	// Users is the database of accounts. Default: /etc/passwd and /etc/group.
	Users Users
	// SpoolDir is where journals go that outgrow their memory. Empty: output
	// beyond the memory is dropped. It must be on a disk, not in memory.
	SpoolDir string

	MemoryPerRun int64 // bytes of a journal in memory. Default: 1 MiB
	SpoolPerRun  int64 // bytes of a journal on disk. Default: 256 MiB
	MemoryTotal  int64 // bytes in memory of all journals beyond 16 KiB each. Default: 16 MiB
	SpoolTotal   int64 // bytes on disk of all journals. Default: 1 GiB

	KeepAlive    time.Duration // silence before a keep-alive event. Default: 10 s
	KeepFor      time.Duration // how long a finished foreground run is kept. Default: 10 min
	KeepRuns     int           // how many of them. Default: 64
	KeepDetached int           // how many finished detached runs are kept. Default: 256
	MaxRuns      int           // runs at one time. Default: 1024
	MaxQueue     int           // calls that wait for one interpreter. Default: 256
	MaxContexts  int           // interpreters, the first one among them. Default: 32
	Meminfo      string        // file that tells the memory left for more of them. Default: /proc/meminfo

	KillGrace  time.Duration // from SIGINT to SIGKILL, programs. Default: 2 s
	ReplGrace  time.Duration // from SIGINT to SIGKILL, interpreter. Default: 5 s
	ReplStart  time.Duration // how long the interpreter may take to start. Default: 2 min
	DrainQuiet time.Duration // silence that ends a run whose pipes others hold. Default: 100 ms
	DrainMax   time.Duration // the most that this may take. Default: 1 s
}

func (c *Config) setDefaults() {
	defaultTo(&c.MainCgroup, c.Cgroup)
	defaultTo(&c.Python, "/usr/bin/python3")
	defaultTo(&c.Node, "/usr/bin/node")
	defaultTo(&c.Bash, "/bin/bash")
	defaultTo(&c.Users.Passwd, "/etc/passwd")
	defaultTo(&c.Users.Group, "/etc/group")
	defaultTo(&c.MemoryPerRun, 1<<20)
	defaultTo(&c.SpoolPerRun, 256<<20)
	defaultTo(&c.MemoryTotal, 16<<20)
	defaultTo(&c.SpoolTotal, 1<<30)
	defaultTo(&c.KeepAlive, 10*time.Second)
	defaultTo(&c.KeepFor, 10*time.Minute)
	defaultTo(&c.KeepRuns, 64)
	defaultTo(&c.KeepDetached, 256)
	defaultTo(&c.MaxRuns, 1024)
	defaultTo(&c.MaxQueue, 256)
	defaultTo(&c.MaxContexts, 32)
	defaultTo(&c.Meminfo, "/proc/meminfo")
	defaultTo(&c.KillGrace, 2*time.Second)
	defaultTo(&c.ReplGrace, 5*time.Second)
	defaultTo(&c.ReplStart, 2*time.Minute)
	defaultTo(&c.DrainQuiet, 100*time.Millisecond)
	defaultTo(&c.DrainMax, time.Second)
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Service runs code and programs. It implements agentv1connect.ExecHandler.
type Service struct {
	agentv1connect.UnimplementedExecHandler // calls that this agent does not know yet

	cfg      Config
	log      *slog.Logger
	journals *journalConfig
	oom      oomCounter
	startIn  func(*exec.Cmd, string) (*reap.Process, error) // startInGroup; tests make it fail
	scripts  map[string][]*os.File                          // that interpreters run, by language
	bashDir  string                                         // where repl.bash is
	contexts contexts
	runs     registry

	// work counts the goroutines that belong to runs; stop ends them.
	work sync.WaitGroup
	stop chan struct{}

	mu     sync.Mutex
	env    map[string]string
	closed bool
}

// New makes a Service. It starts nothing; StartREPL does, or the first call.
func New(cfg Config) (*Service, error) {
	if cfg.Reaper == nil || cfg.Logger == nil {
		return nil, errors.New("exec: Reaper and Logger are required")
	}
	cfg.setDefaults()
	if cfg.SpoolDir != "" {
		if err := os.MkdirAll(cfg.SpoolDir, 0o700); err != nil {
			return nil, fmt.Errorf("make spool directory: %w", err)
		}
	}
	s := &Service{
		cfg:  cfg,
		log:  cfg.Logger,
		oom:  newOOMCounter(cfg.Cgroup),
		stop: make(chan struct{}),
		journals: &journalConfig{
			dir: cfg.SpoolDir, memory: cfg.MemoryPerRun, file: cfg.SpoolPerRun,
			ram: budget{limit: cfg.MemoryTotal}, disk: budget{limit: cfg.SpoolTotal},
		},
	}
	s.startIn = s.startInGroup
	s.runs.init(&s.cfg)
	if err := s.openScripts(); err != nil {
		return nil, err
	}
	s.contexts.init(s)
	return s, nil
}

// Close kills every run and the interpreters and waits for their goroutines.
func (s *Service) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	s.contexts.close()
	s.work.Wait()
	s.runs.close()
	s.closeScripts()
}

// enter registers a goroutine of a run. False: the Service is closed.
func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// Renewal is what a refresh of the machine's identity means for what runs code.
type Renewal struct {
	// Env replaces the environment that everything started from now on gets in
	// addition to the base one, and the live interpreter's os.environ follows.
	Env map[string]string
	// Renamed: the machine has another name than before.
	Renamed bool
	// Entropy: the kernel has fresh entropy. What makes keys in the live interpreter (OpenSSL)
	// starts again from it, whatever else its numbers are.
	Entropy bool
	// Reseed implies it, and gives the global generators of random and numpy.random in the live
	// interpreter fresh entropy. One that does not run needs none.
	Reseed bool
	// Later says that no code of a user can be running, so that an idle
	// interpreter may be told with its next call instead of being woken now.
	Later bool
}

// Renew returns when what the interpreters have to know is on its way: no code in
// it runs between the arrival and the new state, also when it is frozen now and
// thawed later. It does not wait for the interpreter.
func (s *Service) Renew(n Renewal) error {
	env := maps.Clone(n.Env)
	for k, v := range env {
		if err := checkEnv(map[string]string{k: v}); err != nil {
			s.log.Warn("environment variable is not usable", "name", k)
			delete(env, k)
		}
	}
	n.Env = env
	s.mu.Lock()
	s.env = env
	s.mu.Unlock()
	return s.contexts.renew(n)
}

func (s *Service) extraEnv() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

// StartREPL starts the first interpreter, unless it runs, and waits until it is ready.
func (s *Service) StartREPL(ctx context.Context) error { return s.contexts.first.start(ctx) }

// Run implements agentv1connect.ExecHandler.
func (s *Service) Run(ctx context.Context, req *agentv1.RunRequest, out *connect.ServerStream[agentv1.Event]) error {
	if err := checkEnv(req.GetEnv()); err != nil {
		return err
	}
	if req.GetTimeoutMillis() < 0 {
		return invalid("the timeout is negative")
	}
	language := languageName(req.GetLanguage())
	if req.GetContext() == "" && language == "bash" {
		if req.GetBeginIn() != "" {
			return errBeginIn
		}
		return s.runBash(ctx, req, out)
	}
	r, err := s.contexts.find(req.GetContext(), language)
	if err != nil {
		return err
	}
	if language == "" {
		language = r.lang.name
	}
	return s.runIn(ctx, r, language, req, out)
}

// maxTag bounds the tag of a run, in bytes.
const maxTag = 256

// Start implements agentv1connect.ExecHandler.
func (s *Service) Start(ctx context.Context, req *agentv1.StartRequest, out *connect.ServerStream[agentv1.Event]) error {
	if err := checkEnv(req.GetEnv()); err != nil {
		return err
	}
	if len(req.GetArgv()) == 0 || req.GetArgv()[0] == "" {
		return invalid("no program is named")
	}
	for _, arg := range req.GetArgv() {
		if strings.ContainsRune(arg, 0) {
			return invalid("an argument contains a NUL byte")
		}
	}
	if req.GetTimeoutMillis() < 0 {
		return invalid("the timeout is negative")
	}
	if len(req.GetTag()) > maxTag {
		return invalid("the tag is longer than %d bytes", maxTag)
	}
	if req.GetPty() != nil {
		if err := checkSize(req.GetPty()); err != nil {
			return err
		}
	}
	r, err := s.newRun(req.GetRunId(), "", req.GetArgv(), req.GetDetach())
	if err != nil {
		return err
	}
	r.note(req.GetTag(), req.GetPty() != nil)
	s.launch(r, &program{
		argv: req.GetArgv(), env: req.GetEnv(), cwd: req.GetCwd(), user: req.GetUser(), stdin: req.GetStdin(), pty: req.GetPty(),
		timeout: time.Duration(req.GetTimeoutMillis()) * time.Millisecond,
	})
	return s.stream(ctx, r, 0, out)
}

// Attach implements agentv1connect.ExecHandler.
func (s *Service) Attach(ctx context.Context, req *agentv1.AttachRequest, out *connect.ServerStream[agentv1.Event]) error {
	r, err := s.find(req.GetRunId())
	if err != nil {
		return err
	}
	if !req.GetLatest() {
		return s.stream(ctx, r, req.GetFromSeq(), out)
	}
	from := r.journal.latest()
	// Its caller learns at once that what comes is not missed, although nothing may come for long.
	if err := out.Send(&agentv1.Event{Kind: &agentv1.Event_KeepAlive{KeepAlive: &agentv1.KeepAlive{}}}); err != nil {
		return fmt.Errorf("follow run %s: %w", r.id, err)
	}
	return s.stream(ctx, r, from, out)
}

// stream sends a run's events until its Exit. That the client leaves is no
// error worth a log line, and does not touch the run.
func (s *Service) stream(ctx context.Context, r *run, from uint64, out *connect.ServerStream[agentv1.Event]) error {
	sub, ok := r.journal.subscribe(from)
	if !ok {
		return connect.NewError(connect.CodeOutOfRange, fmt.Errorf("run %s has no event %d yet", r.id, from))
	}
	defer sub.close()
	if err := sub.follow(ctx, s.cfg.KeepAlive, batchOf(ctx), out.Send); err != nil {
		if ctx.Err() != nil {
			return connect.NewError(connect.CodeCanceled, context.Cause(ctx))
		}
		return fmt.Errorf("stream run %s: %w", r.id, err)
	}
	return nil
}

// Input implements agentv1connect.ExecHandler.
func (s *Service) Input(ctx context.Context, in *connect.ClientStream[agentv1.InputRequest]) (*agentv1.InputResponse, error) {
	var written uint64
	var r *run
	for in.Receive() {
		m := in.Msg()
		if r == nil || m.GetRunId() != "" && m.GetRunId() != r.id {
			found, err := s.find(m.GetRunId())
			if err != nil {
				return nil, err
			}
			r = found
		}
		n, err := r.input(ctx, m.GetData(), m.GetEof())
		written += uint64(n)
		if err != nil {
			return nil, err
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return &agentv1.InputResponse{Bytes: written}, nil
}

// Signal implements agentv1connect.ExecHandler.
func (s *Service) Signal(_ context.Context, req *agentv1.SignalRequest) (*agentv1.SignalResponse, error) {
	if req.GetSignal() < 1 || req.GetSignal() > 64 {
		return nil, invalid("signal %d does not exist", req.GetSignal())
	}
	r, err := s.find(req.GetRunId())
	if err != nil {
		return nil, err
	}
	if req.GetEndGroup() {
		r.endGroup()
	}
	if err := r.signal(unix.Signal(req.GetSignal())); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("run %s has ended", r.id))
		}
		return nil, fmt.Errorf("signal run %s: %w", r.id, err)
	}
	return &agentv1.SignalResponse{}, nil
}

// List implements agentv1connect.ExecHandler: runs that go on and those that
// are kept, oldest first.
func (s *Service) List(context.Context, *agentv1.ListRequest) (*agentv1.ListResponse, error) {
	out := &agentv1.ListResponse{}
	for _, r := range s.runs.list() {
		out.Runs = append(out.Runs, r.info())
	}
	return out, nil
}

func (s *Service) find(id string) (*run, error) {
	r := s.runs.get(id)
	if r == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no run %q", id))
	}
	return r, nil
}

func (s *Service) newRun(id, language string, argv []string, detach bool) (*run, error) {
	if id == "" {
		var b [16]byte
		rand.Read(b[:]) // never fails, see crypto/rand
		id = hex.EncodeToString(b[:])
	}
	if len(id) > 128 {
		return nil, invalid("the run id is longer than 128 bytes")
	}
	r := &run{
		id: id, language: language, argv: argv, detach: detach, started: time.Now(),
		journal: newJournal(s.journals), registry: &s.runs,
	}
	if err := s.runs.add(r); err != nil {
		return nil, err
	}
	return r, nil
}

func invalid(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}
