package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

var changeTypes = map[string]envdv1.EventType{
	"create": envdv1.EventType_EVENT_TYPE_CREATE, "write": envdv1.EventType_EVENT_TYPE_WRITE,
	"remove": envdv1.EventType_EVENT_TYPE_REMOVE, "rename": envdv1.EventType_EVENT_TYPE_RENAME,
	"chmod": envdv1.EventType_EVENT_TYPE_CHMOD,
}

// change tells a change in a directory as clients know it, nil when it is none: changes that were
// lost have no form here.
func change(dir string, e *agentv1.WatchEvent) *envdv1.FilesystemEvent {
	ch := e.GetChange()
	kind, ok := changeTypes[ch.GetType()]
	if !ok {
		return nil
	}
	out := &envdv1.FilesystemEvent{Name: ch.Path, Type: kind}
	if ch.Info != nil {
		out.Entry = entry(ch.Info)
		if !path.IsAbs(out.Entry.Path) {
			out.Entry.Path = path.Join(dir, ch.Path)
		}
		out.Entry.Name = path.Base(out.Entry.Path)
	}
	return out
}

// changed is one outcome of a watch.
type changed struct {
	event *agentv1.WatchEvent
	err   error
}

// WatchDir tells what changes until its client leaves.
func (s filesystem) WatchDir(ctx context.Context, req *envdv1.WatchDirRequest, out *connect.ServerStream[envdv1.WatchDirResponse]) error {
	c := callOf(ctx)
	dir, err := s.directory(ctx, c, req.Path)
	if err != nil {
		return s.rpcError(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.control.Watch(ctx, c.Project, c.ID, dir, control.WatchOptions{Recursive: req.Recursive, Info: req.IncludeEntry})
	if err != nil {
		return s.rpcError(ctx, err)
	}
	events := make(chan changed)
	go func() {
		defer close(events)
		for {
			e, err := w.Next()
			select {
			case events <- changed{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { // first end the reader, then close
		cancel()
		for range events {
		}
		w.Close()
	}()
	if err := out.Send(&envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Start{Start: &envdv1.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	return s.relayChanges(ctx, dir, events, out)
}

func (s *Server) relayChanges(ctx context.Context, dir string, events <-chan changed, out *connect.ServerStream[envdv1.WatchDirResponse]) error {
	every := callOf(ctx).pings()
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		var m *envdv1.WatchDirResponse
		select {
		case got := <-events:
			if got.err != nil {
				return s.rpcError(ctx, got.err)
			}
			e := change(dir, got.event)
			if e == nil {
				continue
			}
			m = &envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Filesystem{Filesystem: e}}
		case <-quiet.C:
			m = &envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Keepalive{Keepalive: &envdv1.WatchDirResponse_KeepAlive{}}}
		case <-s.draining.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the server is shutting down; watch again in a moment"))
		case <-ctx.Done():
			return s.rpcError(ctx, ctx.Err())
		}
		if err := out.Send(m); err != nil {
			return err
		}
		quiet.Reset(every)
	}
}

// Bounds of what watchers may hold: in one sandbox, in all, and each of them.
const (
	maxWatchersEach  = 32
	maxWatchers      = 1024
	maxWatcherEvents = 8192
	maxWatcherBytes  = 1 << 20
)

// watchers are those that clients ask now and then.
type watchers struct {
	control *control.Control
	life    time.Duration

	ctx   context.Context
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu     sync.Mutex
	closed bool                // guarded by mu
	all    map[string]*watcher // guarded by mu
}

func newWatchers(c *control.Control, life time.Duration) *watchers {
	w := &watchers{control: c, life: life, all: make(map[string]*watcher)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// watcher collects what changes in a directory.
type watcher struct {
	project string
	sandbox sandbox.ID
	dir     string
	cancel  context.CancelFunc
	expire  *time.Timer

	mu     sync.Mutex
	events []*envdv1.FilesystemEvent // guarded by mu
	bytes  int                       // guarded by mu
	err    error                     // guarded by mu; why it has ended
}

// add keeps an event. When there are too many, the oldest half is dropped: what a
// client wants to know is rather what is now.
func (w *watcher) add(e *envdv1.FilesystemEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	w.bytes += proto.Size(e)
	if len(w.events) > maxWatcherEvents || w.bytes > maxWatcherBytes {
		w.events = append([]*envdv1.FilesystemEvent(nil), w.events[(len(w.events)+1)/2:]...)
		w.bytes = 0
		for _, e := range w.events {
			w.bytes += proto.Size(e)
		}
	}
}

// take returns what was collected, or why there will be nothing more.
func (w *watcher) take() ([]*envdv1.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events, w.bytes = nil, 0
	if len(events) == 0 {
		return nil, w.err
	}
	return events, nil
}

var (
	errTooManyWatchers = sandbox.Errorf(sandbox.Exhausted, "too_many_watchers", "there are as many watchers as there can be, %d in one sandbox; remove some", maxWatchersEach)
	errNoWatcher       = connect.NewError(connect.CodeNotFound, errors.New("watcher not found"))
)

// CreateWatcher begins to collect what changes.
func (s filesystem) CreateWatcher(ctx context.Context, req *envdv1.CreateWatcherRequest) (*envdv1.CreateWatcherResponse, error) {
	c := callOf(ctx)
	dir, err := s.directory(ctx, c, req.Path)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	id, err := s.watchers.open(ctx, c, dir, control.WatchOptions{Recursive: req.Recursive, Info: req.IncludeEntry})
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.CreateWatcherResponse{WatcherId: id}, nil
}

// open makes a watcher. It lives until it is removed, nobody asks it for long, or its sandbox ends.
func (ws *watchers) open(ctx context.Context, c *call, dir string, o control.WatchOptions) (string, error) {
	if err := ws.room(c); err != nil {
		return "", err
	}
	// The watch outlives the call that makes it, but not one that is given up meanwhile.
	life, cancel := context.WithCancel(ws.ctx)
	unhook := context.AfterFunc(ctx, cancel)
	watch, err := ws.control.Watch(life, c.Project, c.ID, dir, o)
	if err != nil {
		unhook()
		cancel()
		return "", err
	}
	if !unhook() {
		watch.Close()
		return "", context.Cause(ctx)
	}
	id := rand.Text()
	w := &watcher{project: c.Project, sandbox: c.ID, dir: dir, cancel: cancel}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err := ws.roomLocked(c); err != nil {
		cancel()
		watch.Close()
		return "", err
	}
	ws.all[id] = w
	w.expire = time.AfterFunc(ws.life, func() { ws.remove(id, w.project, w.sandbox) })
	ws.tasks.Go(func() {
		defer watch.Close()
		ws.collect(w, watch)
		ws.forget(id)
	})
	return id, nil
}

// room says why there cannot be one more.
func (ws *watchers) room(c *call) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.roomLocked(c)
}

func (ws *watchers) roomLocked(c *call) error {
	if ws.closed {
		return errNoWatcher
	}
	n := 0
	for _, w := range ws.all {
		if w.sandbox == c.ID {
			n++
		}
	}
	if n >= maxWatchersEach || len(ws.all) >= maxWatchers {
		return errTooManyWatchers
	}
	return nil
}

// collect keeps what changes until the watcher or the sandbox ends.
func (ws *watchers) collect(w *watcher, watch *control.Watch) {
	for {
		e, err := watch.Next()
		if err != nil {
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			return
		}
		if e := change(w.dir, e); e != nil {
			w.add(e)
		}
	}
}

// forgetDelay is how long the end of a watcher can still be asked for.
const forgetDelay = time.Minute

// forget lets a watcher that has ended expire soon.
func (ws *watchers) forget(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w, ok := ws.all[id]; ok {
		w.expire.Reset(min(ws.life, forgetDelay))
	}
}

// get finds a watcher of the sandbox, which lives on for it.
func (ws *watchers) get(id string, c *call) (*watcher, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.all[id]
	if !ok || w.project != c.Project || w.sandbox != c.ID {
		return nil, false
	}
	w.expire.Reset(ws.life)
	return w, true
}

func (ws *watchers) remove(id, project string, sb sandbox.ID) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.all[id]
	if !ok || w.project != project || w.sandbox != sb {
		return false
	}
	w.expire.Stop()
	w.cancel()
	delete(ws.all, id)
	return true
}

func (ws *watchers) close() {
	ws.mu.Lock()
	ws.closed = true
	for id, w := range ws.all {
		w.expire.Stop()
		delete(ws.all, id)
	}
	ws.mu.Unlock()
	ws.stop()
	ws.tasks.Wait()
}

// GetWatcherEvents returns what has changed since it was asked last.
func (s filesystem) GetWatcherEvents(ctx context.Context, req *envdv1.GetWatcherEventsRequest) (*envdv1.GetWatcherEventsResponse, error) {
	c := callOf(ctx)
	w, ok := s.watchers.get(req.WatcherId, c)
	if !ok {
		return nil, errNoWatcher
	}
	events, err := w.take()
	if err != nil {
		s.watchers.remove(req.WatcherId, c.Project, c.ID)
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.GetWatcherEventsResponse{Events: events}, nil
}

// RemoveWatcher ends a watcher.
func (s filesystem) RemoveWatcher(ctx context.Context, req *envdv1.RemoveWatcherRequest) (*envdv1.RemoveWatcherResponse, error) {
	c := callOf(ctx)
	if !s.watchers.remove(req.WatcherId, c.Project, c.ID) {
		return nil, errNoWatcher
	}
	return &envdv1.RemoveWatcherResponse{}, nil
}
