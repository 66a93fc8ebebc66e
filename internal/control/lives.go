package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// The causes of events: one word that says what brought a change about.
const (
	causeCreate      = "create" // a caller's create
	causeDelete      = "delete" // a caller's delete
	causeUpdate      = "update" // a caller's change of settings
	causeFailed      = "create_failed"
	causeFork        = "fork"
	causeMerge       = "merge"
	causeHibernate   = "hibernate"
	causeWake        = "wake"
	causeCheckpoint  = "checkpoint"
	causeRestore     = "restore"
	causeResume      = "resume"
	causeRetention   = "retention" // it was kept as long as its project keeps such
	causeIdle        = "idle_timeout"
	causeLifetime    = "max_lifetime"
	causeDeadline    = "deadline"
	causeMachineExit = "machine_exit"
	causeRestart     = "restart" // found when the server started
	causePolicy      = "policy"  // the network refused something
	causeCleanup     = "cleanup" // an earlier attempt did not get through
)

const (
	// retryExpire is the pause before an end that failed is tried again. It doubles with each
	// failure up to retryExpireMost, since every attempt may write a machine's memory.
	retryExpire     = 5 * time.Second
	retryExpireMost = 10 * time.Minute
	// idleLook is how long the loop sleeps when nothing is due.
	idleLook = time.Hour
)

// lives knows who uses which sandbox, and which of them come to an end by
// themselves. It is memory only: after a restart of the server idle times begin anew.
type lives struct {
	mu   sync.Mutex
	byID map[sandbox.ID]*life // guarded by mu
	// byInstance also has machines that were taken away, while calls to them are open.
	byInstance map[sandbox.InstanceID]*life // guarded by mu
	// wake tells the loop that something may be due earlier than it thought.
	wake chan struct{}
}

func (v *lives) init() {
	v.byID, v.wake = make(map[sandbox.ID]*life), make(chan struct{}, 1)
	v.byInstance = make(map[sandbox.InstanceID]*life)
}

// life is one sandbox that runs, with one machine.
type life struct {
	id        sandbox.ID
	instance  sandbox.InstanceID
	project   string
	created   time.Time
	idle, max time.Duration // 0: none
	ends      time.Time     // its deadline; zero: none
	then      sandbox.AtEnd // what becomes of it at its deadline
	calls     int           // in flight
	last      time.Time     // end of the last call
	notBefore time.Time     // of the next attempt to stop it
	failures  int           // of such attempts
	ending    bool
	holds     int           // operations that new calls wait for
	free      chan struct{} // closed when there are no holds any more
	gone      bool          // it is not in byID any more
	ended     error         // why calls end whose machine was taken away
}

// due returns when the sandbox is to be looked at next, and why it would end then.
func (l *life) due(now time.Time) (at time.Time, cause string) {
	if l.max > 0 {
		at, cause = l.created.Add(l.max), causeLifetime
	}
	if l.idle > 0 {
		idle := l.last.Add(l.idle)
		if l.calls > 0 {
			idle = now.Add(l.idle) // at the earliest, if the call ended now
		}
		if cause == "" || idle.Before(at) {
			at, cause = idle, causeIdle
		}
	}
	if !l.ends.IsZero() && (cause == "" || l.ends.Before(at)) {
		at, cause = l.ends, causeDeadline
	}
	if cause != "" && at.Before(l.notBefore) {
		at = l.notBefore
	}
	return at, cause
}

// watch enters a sandbox that runs, or takes over its new settings.
func (v *lives) watch(sb sandbox.Sandbox) {
	v.mu.Lock()
	v.enterLocked(sb)
	v.mu.Unlock()
	v.nudge()
}

func (v *lives) enterLocked(sb sandbox.Sandbox) *life {
	l := v.byID[sb.ID]
	if l != nil && l.instance != sb.Instance {
		v.dropLocked(l)
		l = nil
	}
	if l == nil {
		l = &life{id: sb.ID, instance: sb.Instance, created: sb.CreatedAt, last: time.Now()}
		v.byID[sb.ID], v.byInstance[sb.Instance] = l, l
	}
	l.project, l.idle, l.max = sb.Project, sb.IdleTimeout, sb.MaxLifetime
	l.ends, l.then = sb.EndsAt, sb.Deadline.Then
	return l
}

// dropLocked takes a life out of the books. Calls that are open may still ask why they end.
func (v *lives) dropLocked(l *life) {
	l.gone = true
	if v.byID[l.id] == l {
		delete(v.byID, l.id)
	}
	if l.calls == 0 && v.byInstance[l.instance] == l {
		delete(v.byInstance, l.instance)
	}
}

// errMoved says that the sandbox has another machine, or none, by now: look again.
var errMoved = errors.New("the record of the sandbox has changed")

// use begins a call to a sandbox: until the function that it returns is called
// the sandbox is not idle. It waits for operations that change the machine, and
// then returns errMoved.
func (v *lives) use(ctx context.Context, sb sandbox.Sandbox) (done func(), err error) {
	v.mu.Lock()
	l := v.byID[sb.ID]
	if l == nil {
		l = v.enterLocked(sb)
	}
	if l.holds > 0 && !l.ending {
		free := l.free
		v.mu.Unlock()
		select {
		case <-free:
			return nil, errMoved
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for an operation on sandbox %s: %w", sb.ID, context.Cause(ctx))
		}
	}
	defer v.mu.Unlock()
	if l.ending {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox not found")
	}
	if l.instance != sb.Instance {
		return nil, errMoved
	}
	l.calls++
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		l.calls--
		l.last, l.failures = time.Now(), 0
		if l.gone {
			v.dropLocked(l)
		}
	}), nil
}

// hold makes new calls to a sandbox wait until release is called. Calls that are open go on.
func (v *lives) hold(sb sandbox.Sandbox) (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holdLocked(v.enterLocked(sb))
}

func (v *lives) holdLocked(l *life) (release func()) {
	if l.holds++; l.holds == 1 {
		l.free = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		v.mu.Lock()
		if l.holds--; l.holds == 0 {
			close(l.free)
		}
		v.mu.Unlock()
		v.nudge()
	})
}

// retire takes a machine away from its sandbox: calls to it that are open end with err.
func (v *lives) retire(id sandbox.InstanceID, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.byInstance[id]; l != nil {
		l.ended = err
		v.dropLocked(l)
	}
}

// why returns with what calls to a machine end that was taken away, or nil.
func (v *lives) why(id sandbox.InstanceID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.byInstance[id]; l != nil {
		return l.ended
	}
	return nil
}

// move gives a sandbox the machine of another, with the calls to it that are open.
func (v *lives) move(from sandbox.ID, to sandbox.Sandbox) {
	v.mu.Lock()
	if l := v.byID[from]; l != nil && l.instance == to.Instance {
		delete(v.byID, from)
		if old := v.byID[to.ID]; old != nil {
			v.dropLocked(old)
		}
		l.id, l.created = to.ID, to.CreatedAt
		v.byID[to.ID] = l
	}
	v.enterLocked(to)
	v.mu.Unlock()
	v.nudge()
}

// forget removes a sandbox that has ended.
func (v *lives) forget(id sandbox.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.byID[id]; l != nil {
		v.dropLocked(l)
	}
}

// keep removes all that is not in use and not in the list: what ended unnoticed.
func (v *lives) keep(list []sandbox.Sandbox) {
	known := make(map[sandbox.ID]bool, len(list))
	for _, sb := range list {
		known[sb.ID] = sb.State == sandbox.Running
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, l := range v.byID {
		// One that was entered after the list was made is a few seconds old at most.
		if !known[id] && l.calls == 0 && l.holds == 0 && time.Since(l.last) > sweepInterval {
			v.dropLocked(l)
		}
	}
}

// expired is a sandbox whose time is over.
type expired struct {
	id      sandbox.ID
	project string
	cause   string
	reason  string
	then    sandbox.AtEnd // of a deadline
	life    *life
	release func() // of one that goes to sleep: its calls wait meanwhile
}

// sleeps says that the sandbox is put to sleep, and not ended.
func (l *life) sleeps(cause string) bool {
	return cause == causeIdle || cause == causeDeadline && !deletes(l.then)
}

// collect marks the sandboxes whose time is over as ending and returns them, with
// the time until the next is due.
func (v *lives) collect(now time.Time) (due []expired, wait time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	wait = idleLook
	for id, l := range v.byID {
		at, cause := l.due(now)
		if cause == "" || l.ending || l.holds > 0 && l.sleeps(cause) {
			continue // an operation is no idleness, and its end is looked at
		}
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			continue
		}
		e := expired{id: id, project: l.project, cause: cause, then: l.then, life: l, release: func() {}}
		switch cause {
		case causeIdle:
			e.reason = fmt.Sprintf("no call for %s, its idle timeout", l.idle)
		case causeLifetime:
			e.reason = fmt.Sprintf("it is older than %s, its maximum lifetime", l.max)
		case causeDeadline:
			e.reason = "its deadline is over, and nobody gave it more time"
		}
		if l.sleeps(cause) {
			e.release = v.holdLocked(l)
		} else {
			l.ending = true
		}
		due = append(due, e)
	}
	return due, wait
}

// again lets an end that failed be tried once more.
func (v *lives) again(l *life) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pause := min(retryExpire<<min(l.failures, 10), retryExpireMost)
	l.failures++
	l.ending, l.notBefore = false, time.Now().Add(pause)
}

// spare lets a sandbox live on whose deadline was moved when it was just over.
func (v *lives) spare(l *life) {
	v.mu.Lock()
	l.ending = false
	v.mu.Unlock()
	v.nudge()
}

// expireLoop puts sandboxes to sleep that are idle, and ends those whose lifetime or deadline
// is over.
func (c *Control) expireLoop() {
	for {
		due, wait := c.lives.collect(time.Now())
		for _, e := range due {
			if err := c.spawn(func() { c.expire(e) }); err != nil {
				return
			}
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.lives.wake:
		case <-c.life.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (c *Control) expire(e expired) {
	defer e.release()
	var err error
	switch {
	case e.cause == causeIdle:
		err = c.idle(e.project, e.id, ending{cause: causeIdle, reason: e.reason}, sandbox.AtEndHibernate)
	case e.cause == causeDeadline && !deletes(e.then):
		err = c.idle(e.project, e.id, ending{cause: causeDeadline, reason: e.reason, check: deadlineOver}, e.then)
	default:
		ctx, cancel := context.WithTimeout(c.life, c.cfg.StopTimeout)
		defer cancel()
		why := ending{cause: e.cause, reason: e.reason}
		if e.cause == causeDeadline {
			why.check = deadlineOver
		}
		_, err = c.end(ctx, e.project, e.id, why)
	}
	if errors.Is(err, errMoreTime) {
		c.lives.spare(e.life)
		return
	}
	if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
		c.lives.drop(e.life)
		return
	}
	c.lives.again(e.life)
	c.lives.nudge()
	if c.life.Err() == nil && !errors.Is(err, errBusy) {
		c.log.Error("end a sandbox whose time is over", "sandbox", e.id, "cause", e.cause, "err", err)
	}
}

func (v *lives) drop(l *life) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dropLocked(l)
}

func (v *lives) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// errMoreTime ends what a deadline had begun: the deadline was moved meanwhile.
var errMoreTime = errors.New("the sandbox was given more time")

// deadlineOver looks again, in the transaction that would end the sandbox.
func deadlineOver(sb sandbox.Sandbox) error {
	if sb.EndsAt.IsZero() || sb.EndsAt.After(time.Now()) {
		return errMoreTime
	}
	return nil
}
