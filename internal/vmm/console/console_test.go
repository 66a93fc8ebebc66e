package console

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConsole(t *testing.T) {
	dir := t.TempDir()
	const limit = 1000
	c, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	w, err := WriterFor(dir, GuestName)
	if err != nil {
		t.Fatal(err)
	}
	e, err := WriterFor(dir, MonitorName)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := w.WriteString(strings.Repeat("x", 100) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.WriteString("the \x1b[31mend\xff\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.WriteString("qemu: \n complaint\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !c.WaitFor(ctx, "end") {
		t.Error("the end did not come")
	}
	over, stop := context.WithCancel(ctx)
	stop()
	if c.WaitFor(over, "never") {
		t.Error("found what was not written")
	}
	if err := errors.Join(w.Close(), e.Close(), c.Finish()); err != nil {
		t.Fatal(err)
	}
	s := c.String()
	if len(s) > 2*limit+10 || !strings.Contains(s, "the [31mend?\n") || !strings.Contains(s, "complaint") || strings.Contains(s, "\x1b") {
		t.Errorf("console %q", s)
	}
	if c.Stderr() != "qemu: complaint" {
		t.Errorf("stderr %q", c.Stderr())
	}
	c.errs = []byte(strings.Repeat("x", 5000) + " last")
	if s := c.Stderr(); len(s) > MaxComplaint || !strings.HasSuffix(s, "x last") {
		t.Errorf("stderr of %d bytes", len(s))
	}
	st, err := os.Stat(filepath.Join(dir, LogName))
	if err != nil || st.Size() > 2*limit {
		t.Errorf("log: %d bytes, %v", st.Size(), err)
	}
	again, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(again.String(), "end") {
		t.Error("a later process does not see the log")
	}
	if err := again.Finish(); err != nil {
		t.Error(err)
	}
}
