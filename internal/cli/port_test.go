package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/client"
)

func TestListenAddress(t *testing.T) {
	for flag, want := range map[string]struct {
		address string
		other   bool
	}{
		"":               {"127.0.0.1:8000", true},
		"9000":           {"127.0.0.1:9000", false},
		":9000":          {"127.0.0.1:9000", false}, // all addresses have to be asked for
		"0.0.0.0:9000":   {"0.0.0.0:9000", false},
		"0.0.0.0":        {"0.0.0.0:8000", true},
		"localhost:":     {"localhost:8000", true},
		"127.0.0.1:0":    {"127.0.0.1:0", false},
		"::1":            {"[::1]:8000", true},
		"[::1]:9000":     {"[::1]:9000", false},
		"localhost:8000": {"localhost:8000", false},
	} {
		address, other, err := listenAddress(flag, 8000)
		if err != nil || address != want.address || other != want.other {
			t.Errorf("%q: %s, %v, %v", flag, address, other, err)
		}
	}
	for _, flag := range []string{"a:b", "127.0.0.1:70000", "::1:x:"} {
		if _, _, err := listenAddress(flag, 8000); err == nil {
			t.Errorf("%q is an address", flag)
		}
	}
}

// forwarding runs 'port' on a fake server and returns where it listens.
func forwarding(t *testing.T, port int) (address string, stderr *lockedText, end func() error) {
	t.Helper()
	fake := clitest.New(t.TempDir())
	srv := httptest.NewServer(fake.Handler())
	t.Cleanup(srv.Close)
	t.Setenv("RAMET_URL", srv.URL)
	t.Setenv("RAMET_API_KEY", clitest.Key)
	c, err := client.New(srv.URL, clitest.Key, "test")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := c.Create(t.Context(), v1.SandboxCreate{})
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr = &lockedText{}
	p := &program{Options: Options{In: os.Stdin, Out: outW, Err: errW}}
	p.command = p.portCommand()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var copied sync.WaitGroup
	copied.Go(func() { _, _ = io.Copy(stderr, errR) })
	go func() {
		done <- p.forwardPort(ctx, portOptions{listen: "127.0.0.1:0", asJSON: true}, sb.Id, strconv.Itoa(port))
		outW.Close()
		errW.Close()
	}()
	var said forwardJSON
	if err := json.NewDecoder(bufio.NewReader(outR)).Decode(&said); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if said.Port != port || said.Sandbox != sb.Id {
		t.Errorf("%+v", said)
	}
	end = sync.OnceValue(func() error {
		cancel()
		err := <-done
		copied.Wait()
		return err
	})
	t.Cleanup(func() { _ = end() })
	return said.Address, stderr, end
}

// lockedText is text that is written while it is read.
type lockedText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestPortForwardsSeveralAtOnce: whole data, half-closes, and a clean end in the middle.
func TestPortForwardsSeveralAtOnce(t *testing.T) {
	service, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	go func() {
		for {
			conn, err := service.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				all, _ := io.ReadAll(conn) // one that is cut off is not answered
				_, _ = conn.Write(all)
			}()
		}
	}()
	address, stderr, end := forwarding(t, service.Addr().(*net.TCPAddr).Port)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			data := make([]byte, 600_000)
			rand.Read(data)
			_, err = conn.Write(data)
			if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	open, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the command")
	}
	if stderr.String() != "" {
		t.Errorf("it said %q", stderr)
	}
}

// TestPortWhereNothingListens: it says so, resets the connection and goes on.
func TestPortWhereNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	address, stderr, end := forwarding(t, l.Addr().(*net.TCPAddr).Port)
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("something answered")
		}
		conn.Close()
	}
	_ = end()
	if n := strings.Count(stderr.String(), "nothing listens on port"); n != 1 {
		t.Errorf("it was said %d times: %q", n, stderr)
	}
}
