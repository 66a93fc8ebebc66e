package control

import (
	"context"
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
	causeIdle        = "idle_timeout"
	causeLifetime    = "max_lifetime"
	causeMachineExit = "machine_exit"
	causeRestart     = "restart" // found when the server started
	causePolicy      = "policy"  // the network refused something
	causeCleanup     = "cleanup" // an earlier attempt did not get through
)

const (
	// retryExpire is the pause before a stop that could not begin is tried again.
	retryExpire = 5 * time.Second
	// idleLook is how long the loop sleeps when nothing is due.
	idleLook = time.Hour
)

// lives knows who uses which sandbox, and which of them come to an end by
// themselves. It is memory only: after a restart of the server idle times begin anew.
type lives struct {
	mu   sync.Mutex
	byID map[sandbox.ID]*life // guarded by mu
	// wake tells the loop that something may be due earlier than it thought.
	wake chan struct{}
}

func (v *lives) init() {
	v.byID, v.wake = make(map[sandbox.ID]*life), make(chan struct{}, 1)
}

// life is one sandbox that runs.
type life struct {
	project   string
	created   time.Time
	idle, max time.Duration // 0: none
	calls     int           // in flight
	last      time.Time     // end of the last call
	notBefore time.Time     // of the next attempt to stop it
	ending    bool
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
	if l == nil {
		l = &life{project: sb.Project, created: sb.CreatedAt, last: time.Now()}
		v.byID[sb.ID] = l
	}
	l.idle, l.max = sb.IdleTimeout, sb.MaxLifetime
	return l
}

// use begins a call to a sandbox: until the function that it returns is called
// the sandbox is not idle.
func (v *lives) use(sb sandbox.Sandbox) (done func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.byID[sb.ID]
	if l == nil {
		l = v.enterLocked(sb)
	}
	if l.ending {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox not found")
	}
	l.calls++
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		l.calls--
		l.last = time.Now()
	}), nil
}

// forget removes a sandbox that has ended.
func (v *lives) forget(id sandbox.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byID, id)
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
		if !known[id] && l.calls == 0 && time.Since(l.last) > sweepInterval {
			delete(v.byID, id)
		}
	}
}

// expired is a sandbox whose time is over.
type expired struct {
	id      sandbox.ID
	project string
	cause   string
	reason  string
}

// collect marks the sandboxes whose time is over as ending and returns them, with
// the time until the next is due.
func (v *lives) collect(now time.Time) (due []expired, wait time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	wait = idleLook
	for id, l := range v.byID {
		at, cause := l.due(now)
		if cause == "" || l.ending {
			continue
		}
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			continue
		}
		l.ending = true
		reason := fmt.Sprintf("no call for %s, its idle timeout", l.idle)
		if cause == causeLifetime {
			reason = fmt.Sprintf("it is older than %s, its maximum lifetime", l.max)
		}
		due = append(due, expired{id, l.project, cause, reason})
	}
	return due, wait
}

// again lets a stop that could not begin be tried once more.
func (v *lives) again(id sandbox.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.byID[id]; l != nil {
		l.ending, l.notBefore = false, time.Now().Add(retryExpire)
	}
}

// expireLoop stops sandboxes whose time is over.
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
	ctx, cancel := context.WithTimeout(c.life, c.cfg.StopTimeout)
	defer cancel()
	_, err := c.end(ctx, e.project, e.id, ending{cause: e.cause, reason: e.reason})
	if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
		c.lives.forget(e.id)
		return
	}
	c.lives.again(e.id)
	c.lives.nudge()
	if c.life.Err() == nil {
		c.log.Error("stop a sandbox whose time is over", "sandbox", e.id, "cause", e.cause, "err", err)
	}
}

func (v *lives) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}
