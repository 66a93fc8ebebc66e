package control

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// books makes lives with one sandbox.
func books(idle time.Duration) (*lives, sandbox.Sandbox) {
	v := &lives{}
	v.init()
	sb := sandbox.Sandbox{ID: sandbox.NewID(), Project: "p", Instance: sandbox.NewInstanceID(), IdleTimeout: idle, CreatedAt: time.Now()}
	v.watch(sb)
	return v, sb
}

func TestSilentCallOfTenSecondsIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, sb := books(3 * time.Second)
		done, err := v.use(t.Context(), sb)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if due, wait := v.collect(time.Now()); len(due) != 0 || wait != 3*time.Second {
			t.Errorf("%v, in %s", due, wait)
		}
		done()
		time.Sleep(2999 * time.Millisecond)
		if due, wait := v.collect(time.Now()); len(due) != 0 || wait != time.Millisecond {
			t.Errorf("%v, in %s", due, wait)
		}
		time.Sleep(time.Millisecond)
		if due, _ := v.collect(time.Now()); len(due) != 1 || due[0].cause != causeIdle {
			t.Errorf("%v", due)
		}
	})
}

func TestCallsWaitForAnIdleSandboxAndLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, sb := books(time.Second)
		time.Sleep(time.Second)
		due, _ := v.collect(time.Now())
		if len(due) != 1 {
			t.Fatal(due)
		}
		if again, _ := v.collect(time.Now()); len(again) != 0 {
			t.Error("it is due twice")
		}
		begin, got := time.Now(), make(chan error, 2)
		go func() {
			_, err := v.use(context.Background(), sb)
			got <- err
		}()
		time.Sleep(5 * time.Second)
		due[0].release()
		if err := <-got; !errors.Is(err, errMoved) || time.Since(begin) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		// One that leaves does not wait.
		release := v.hold(sb)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.use(ctx, sb); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestFailedHibernationIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := books(time.Second)
		var pauses []time.Duration
		time.Sleep(time.Second)
		for range 10 {
			due, wait := v.collect(time.Now())
			for len(due) == 0 {
				pauses = append(pauses, wait)
				time.Sleep(wait)
				due, wait = v.collect(time.Now())
			}
			v.again(due[0].life)
			due[0].release()
		}
		if len(pauses) != 9 || pauses[0] != retryExpire || pauses[1] != 2*retryExpire || pauses[8] != retryExpireMost {
			t.Errorf("%v", pauses)
		}
	})
}

func TestMovedCallsCountForTheOtherSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, parent := books(time.Second)
		winner := sandbox.Sandbox{ID: sandbox.NewID(), Project: "p", Instance: sandbox.NewInstanceID(), IdleTimeout: time.Hour}
		old, err := v.use(t.Context(), parent)
		if err != nil {
			t.Fatal(err)
		}
		done, err := v.use(t.Context(), winner)
		if err != nil {
			t.Fatal(err)
		}
		was := parent.Instance
		v.retire(was, errMerged)
		parent.Instance = winner.Instance
		v.move(winner.ID, parent)
		if err := v.why(was); !errors.Is(err, errMerged) {
			t.Errorf("the old call: %v", err)
		}
		time.Sleep(time.Minute)
		if due, _ := v.collect(time.Now()); len(due) != 0 {
			t.Errorf("idle with a call: %v", due)
		}
		stale := parent
		stale.Instance = was
		if _, err := v.use(t.Context(), stale); !errors.Is(err, errMoved) {
			t.Errorf("a stale record: %v", err)
		}
		old()
		done()
		time.Sleep(time.Second)
		if due, _ := v.collect(time.Now()); len(due) != 1 || due[0].id != parent.ID {
			t.Errorf("%v", due)
		}
		v.forget(parent.ID)
		if len(v.byID)+len(v.byInstance) != 0 {
			t.Errorf("%d and %d are left", len(v.byID), len(v.byInstance))
		}
	})
}
