package floor

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// stepLog is a log that keeps one thing of what the driver says: how long each
// step of a machine's start took.
type stepLog struct {
	mu   sync.Mutex
	took map[sandbox.InstanceID]map[string]float64 // guarded by mu; milliseconds
}

func newStepLog() *stepLog {
	return &stepLog{took: map[sandbox.InstanceID]map[string]float64{}}
}

func (l *stepLog) logger() *slog.Logger { return slog.New(l) }

// Enabled implements slog.Handler.
func (l *stepLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *stepLog) Handle(_ context.Context, r slog.Record) error {
	var id sandbox.InstanceID
	step, took := "", time.Duration(-1)
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Any().(type) {
		case sandbox.InstanceID:
			id = v
		case string:
			if a.Key == "step" {
				step = v
			}
		case time.Duration:
			took = v
		}
		return true
	})
	if id == "" || step == "" || took < 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took[id] == nil {
		l.took[id] = map[string]float64{}
	}
	l.took[id]["start_"+strings.ReplaceAll(step, " ", "_")] = millis(took)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *stepLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *stepLog) WithGroup(string) slog.Handler { return l }

// of returns the steps of a machine; never nil.
func (l *stepLog) of(id sandbox.InstanceID) map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]float64{}
	for k, v := range l.took[id] {
		out[k] = v
	}
	return out
}

func (l *stepLog) forget(id sandbox.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.took, id)
}
