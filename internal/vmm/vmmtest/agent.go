package vmmtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/vmm"
)

// callTimeout bounds one call to a guest; a cold guest boots during its first.
const callTimeout = 90 * time.Second

// Agent talks to the test guest of a machine.
type Agent struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	next int
}

// Dial connects to a machine's test guest.
func Dial(t testing.TB, m vmm.Machine) *Agent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	conn, err := m.DialAgent(ctx)
	if err != nil {
		t.Fatalf("dial the agent: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	a := &Agent{t: t, conn: conn, r: bufio.NewReader(conn), next: time.Now().Nanosecond()}
	// The first line of a connection may follow a torn one.
	if _, err := conn.Write([]byte("\n")); err != nil {
		t.Fatalf("write to the agent: %v", err)
	}
	return a
}

// Try makes one call and returns its answer.
func (a *Agent) Try(timeout time.Duration, command string, args ...any) (string, error) {
	a.next++
	id := "q" + strconv.Itoa(a.next)
	line := id + " " + command
	for _, arg := range args {
		line += fmt.Sprintf(" %v", arg)
	}
	if err := a.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := a.conn.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	for {
		answer, err := a.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(answer, "\n"), id+" "); ok {
			if msg, bad := strings.CutPrefix(rest, "error: "); bad {
				return "", fmt.Errorf("guest: %s", msg)
			}
			return rest, nil
		}
	}
}

// Call is Try for calls that have to work.
func (a *Agent) Call(command string, args ...any) string {
	a.t.Helper()
	answer, err := a.Try(callTimeout, command, args...)
	if err != nil {
		a.t.Fatalf("guest %s %v: %v", command, args, err)
	}
	return answer
}

// Want fails the test unless the answer is want.
func (a *Agent) Want(want, command string, args ...any) {
	a.t.Helper()
	if got := a.Call(command, args...); got != want {
		a.t.Fatalf("guest %s %v: got %q, want %q", command, args, got, want)
	}
}
