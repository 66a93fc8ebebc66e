package fake_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/fake"
	"ramet.dev/ramet/internal/vmm/vmmtest"
	"ramet.dev/ramet/internal/vmm/vmmtest/testguest"
)

// guest is the conformance suite's guest, in memory.
type guest struct{ *fake.Guest }

func (g guest) Do(command string, args []string) (string, error) {
	args = append(args, "", "", "")
	switch command {
	case "echo":
		return args[0], nil
	case "set":
		g.Set(args[0], args[1])
		return "ok", nil
	case "get":
		return g.Get(args[0]), nil
	case "mem":
		return strconv.Itoa(g.MemoryMB()), nil
	case "disk":
		return strconv.Itoa(g.DiskMB()), nil
	case "wdisk":
		g.Set(fake.DiskPrefix+args[0], args[1]+"/"+args[2])
		return "ok", nil
	case "rdisk":
		return "sum-" + g.Get(fake.DiskPrefix+args[0]), nil
	case "dirty":
		mb, err := strconv.Atoi(args[0])
		g.Set("hog", args[0]+"/"+args[1])
		g.SetOwnPages(int64(mb) << 8)
		return g.sum(), err
	case "sum":
		return g.sum(), nil
	case "frame":
		g.Set("frame", args[0])
		return "ok", nil
	case "off":
		g.Exit(fake.ErrShutDown)
		return "", errors.New("shutting down")
	}
	return "", fmt.Errorf("unknown command %q", command)
}

func (g guest) sum() string {
	h := fnv.New64a()
	h.Write([]byte(g.Get("hog")))
	return strconv.FormatUint(h.Sum64(), 16)
}

func serve(g *fake.Guest, conn net.Conn) {
	_ = testguest.Serve(conn, guest{g}) // ends with the connection
}

// frames repeats the last frame that the guest was asked to send.
func frames(g *fake.Guest, conn net.Conn) {
	for {
		frame := make([]byte, 64)
		copy(frame[14:], g.Get("frame"))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			return
		}
	}
}

func TestConformance(t *testing.T) {
	host := fake.NewHost(fake.Config{Serve: serve, Network: frames})
	vmmtest.Run(t, vmmtest.Subject{
		Image:     vmm.Image{Hash: "fake"},
		NewDriver: func(testing.TB) vmm.Driver { return host.Driver() },
	})
	if left := host.Machines(); len(left) != 0 {
		t.Errorf("%d machines are left", len(left))
	}
}

func TestFail(t *testing.T) {
	host := fake.NewHost(fake.Config{})
	boom := errors.New("boom")
	config := func() vmm.Config {
		return vmm.Config{Instance: sandbox.NewInstanceID(), Dir: t.TempDir(), Shape: sandbox.Shape{VCPUs: 1}}
	}
	ctx := context.Background()
	host.Fail(fake.StepStart, boom)
	if _, err := host.Driver().Start(ctx, config()); !errors.Is(err, boom) {
		t.Errorf("start: %v", err)
	}
	host.Fail(fake.StepStart, nil)
	m, err := host.Driver().Start(ctx, config())
	if err != nil {
		t.Fatal(err)
	}
	for step, call := range map[string]func() error{
		fake.StepResume:       func() error { return m.Resume(ctx) },
		fake.StepPause:        func() error { return m.Pause(ctx) },
		fake.StepSave:         func() error { _, err := m.Save(ctx, t.TempDir(), vmm.SaveOptions{}); return err },
		fake.StepResizeMemory: func() error { return m.ResizeMemory(ctx, 1024) },
		fake.StepResizeDisk:   func() error { return m.ResizeDisk(ctx, 1024) },
		fake.StepDialAgent:    func() error { c, err := m.DialAgent(ctx); closeConn(c); return err },
		fake.StepDialNetwork:  func() error { c, err := m.DialNetwork(ctx); closeConn(c); return err },
		fake.StepStats:        func() error { _, err := m.Stats(); return err },
	} {
		host.Fail(step, boom)
		if err := call(); !errors.Is(err, boom) {
			t.Errorf("%s: got %v, want it to fail", step, err)
		}
		host.Fail(step, nil)
		if err := call(); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	if err := m.Kill(ctx); err != nil {
		t.Fatal(err)
	}
}

func closeConn(c net.Conn) {
	if c != nil {
		c.Close()
	}
}
