package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// service listens on this host's loopback, which is that of the fake guests.
func service(t *testing.T, serve func(net.Conn)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) } // what breaks it is what is tested

func (n *node) dial(t *testing.T, id sandbox.ID, port int) control.PortConn {
	t.Helper()
	conn, err := n.Dial(t.Context(), project, id, port)
	if err != nil {
		t.Fatal(err)
	}
	pc, ok := conn.(control.PortConn)
	if !ok {
		t.Fatalf("%T is no PortConn", conn)
	}
	t.Cleanup(pc.Abort)
	return pc
}

func TestDial(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	port := service(t, echo)
	ctx, cancel := context.WithCancel(t.Context())
	raw, err := n.Dial(ctx, project, sb.ID, port)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // it bounds the connecting only
	conn := raw.(control.PortConn)
	defer conn.Abort()
	data := make([]byte, 2<<20)
	rand.Read(data)
	go func() {
		_, err := conn.Write(data)
		if err := errors.Join(err, conn.CloseWrite()); err != nil {
			t.Error(err)
		}
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	ports, err := n.Listening(t.Context(), project, sb.ID)
	if err != nil || !slices.Contains(ports, port) {
		t.Fatalf("%v, %v", ports, err)
	}
}

func TestDialErrors(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	_, err = n.Dial(t.Context(), project, sb.ID, closed)
	if sandbox.KindOf(err) != sandbox.Conflict || codeOf(err) != "port_closed" {
		t.Errorf("nothing listens: %v", err)
	}
	for _, port := range []int{-1, 0, 65536} {
		if _, err := n.Dial(t.Context(), project, sb.ID, port); codeOf(err) != "invalid_port" {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if _, err := n.Dial(t.Context(), "other", sb.ID, closed); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project: %v", err)
	}
	n.machines.OldAgents = true
	old := n.create(t)
	if _, err := n.Dial(t.Context(), project, old.ID, closed); sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "make a new sandbox") {
		t.Errorf("an old agent: %v", err)
	}
	if _, err := n.Listening(t.Context(), project, old.ID); codeOf(err) != "agent_too_old" {
		t.Errorf("an old agent: %v", err)
	}
	if _, err := n.Watch(t.Context(), project, old.ID, "/root", control.WatchOptions{}); codeOf(err) != "agent_too_old" {
		t.Errorf("an old agent: %v", err)
	}
}

// TestOpenConnectionIsUse: a silent one too, and it ends with a clear error when its sandbox is put
// to sleep all the same. The next one wakes it.
func TestOpenConnectionIsUse(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	conn := n.dial(t, sb.ID, service(t, echo))
	if got := n.InUse(sb.ID); got != 1 {
		t.Fatalf("%d calls keep it from being idle", got)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := n.InUse(sb.ID); got != 0 {
		t.Fatalf("%d calls after the connection was closed", got)
	}
	conn = n.dial(t, sb.ID, service(t, echo))
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); codeOf(err) != "sandbox_hibernated" {
		t.Errorf("the connection ended with %v", err)
	}
	if _, err := n.Dial(control.WithoutWake(t.Context()), project, sb.ID, 1); codeOf(err) != "sandbox_hibernated" {
		t.Errorf("without a wake: %v", err)
	}
	again := n.dial(t, sb.ID, service(t, echo))
	if _, err := again.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(again, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
}

func TestResetOfAConnection(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	conn := n.dial(t, sb.ID, service(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	}))
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

// TestConnectionsEndWithTheServer: Close waits for none of them.
func TestConnectionsEndWithTheServer(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	port := service(t, echo)
	conns := make([]control.PortConn, 20)
	for i := range conns {
		conns[i] = n.dial(t, sb.ID, port)
	}
	n.stop(t)
	for _, c := range conns {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlived the server")
		}
	}
}

func TestWatch(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for path, want := range map[string]string{"/none": "file_not_found", "": "invalid_path"} {
		if _, err := n.Watch(t.Context(), project, sb.ID, path, control.WatchOptions{}); codeOf(err) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
	n.put(t, sb.ID, "/root/f", "")
	if _, err := n.Watch(t.Context(), project, sb.ID, "/root/f", control.WatchOptions{}); codeOf(err) != "not_a_directory" {
		t.Errorf("a file: %v", err)
	}
	w, err := n.Watch(t.Context(), project, sb.ID, ".", control.WatchOptions{Recursive: true, Info: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n.put(t, sb.ID, "/root/new/f", "hello")
	var got *agentv1.Change
	for got.GetPath() != "new/f" {
		e, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = e.GetChange()
	}
	if got.Type != "create" || got.Info.GetSize() != 5 || got.Info.Path != "/root/new/f" {
		t.Errorf("%v", got)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := w.Next(); err != nil {
				ended <- err
				return
			}
		}
	}()
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if codeOf(err) != "sandbox_hibernated" {
			t.Errorf("the watch ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch outlived its machine")
	}
}

func TestAttributesOfFiles(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	set := map[string]string{"origin": "test"}
	info, err := n.WriteFileWith(t.Context(), project, sb.ID, "f", control.WriteOptions{Attributes: set}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := n.Stat(t.Context(), project, sb.ID, "f", "", true)
	if err != nil || stat.Attributes["origin"] != "test" || info.Attributes["origin"] != "test" {
		t.Errorf("%v, %v, %v", info, stat, err)
	}
	for _, bad := range []map[string]string{{"": "x"}, {"a": strings.Repeat("x", 20<<10)}, {"a": "\xff"}} {
		if _, err := n.WriteFileWith(t.Context(), project, sb.ID, "f", control.WriteOptions{Attributes: bad}, strings.NewReader("x")); codeOf(err) != "invalid_attributes" {
			t.Errorf("%v", err)
		}
	}
}
