package app

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestTellManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := tellManager("READY=1"); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{filepath.Join(dir, "notify"), "@" + dir + "/abstract"} {
		ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		if err := tellManager("READY=1\nSTATUS=x"); err != nil {
			t.Fatal(err)
		}
		if err := ln.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := ln.Read(b)
		if err != nil || string(b[:n]) != "READY=1\nSTATUS=x" {
			t.Errorf("%s: %q, %v", name, b[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "nosuch"))
	if err := tellManager("READY=1"); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}
