package gvisor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func archive(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := cpio.Newc.Writer(&b)
	for i, n := range names {
		if err := w.WriteRecord(cpio.StaticFile(n, strings.Repeat(n, i+1), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), make([]byte, -b.Len()&511)...)
}

func TestTheAgentIsTheLastInit(t *testing.T) {
	data := append(archive(t, "init", "modules.list"), archive(t, "bin", "init")...)
	if got, err := findInit(data); err != nil || string(got) != "initinit" {
		t.Errorf("%q, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"none": archive(t, "bin"), "empty": nil, "zeros": make([]byte, 100), "no archive": []byte("#!/bin/sh"), "cut off": archive(t, "init")[:113],
	} {
		if got, err := findInit(bad); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzFindInit(f *testing.F) {
	f.Add(archive(f, "init", "x"))
	f.Add([]byte("070701"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = findInit(b) }) // it must return
}

// TestFramesInPieces sends and receives frames by bytes; a pipe is the card.
func TestFramesInPieces(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := &frames{File: w}
	var stream []byte
	for _, frame := range []string{"first", "", "second"} {
		stream = binary.BigEndian.AppendUint32(stream, uint32(len(frame)))
		stream = append(stream, frame...)
	}
	for i := range stream {
		if n, err := f.Write(stream[i : i+1]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "firstsecond" {
		t.Errorf("the card got %q, %v", got, err)
	}
	if _, err := (&frames{File: w}).Write([]byte{0xff, 0, 0, 0}); err == nil {
		t.Error("a frame of gigabytes was taken")
	}

	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w2.WriteString("a frame"); err != nil {
		t.Fatal(err)
	}
	if err := w2.Close(); err != nil {
		t.Fatal(err)
	}
	in := &frames{File: r2}
	defer in.Close()
	got := make([]byte, 11)
	for i := range got {
		if n, err := in.Read(got[i : i+1]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if string(got) != "\x00\x00\x00\x07a frame" {
		t.Errorf("read %q", got)
	}
	if n, err := in.Read(got); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// TestSpecIsTheSameForAllInstances is what makes a snapshot of one sandbox fit another: only the
// path of the empty root directory may differ.
func TestSpecIsTheSameForAllInstances(t *testing.T) {
	one, err := newSpec("/one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := newSpec("/two")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.ReplaceAll(one, []byte("/one"), []byte("/two")), two) {
		t.Error("two instances have different descriptions")
	}
	var s spec
	if err := json.Unmarshal(one, &s); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			t.Errorf("%s is a directory of the host", m.Destination)
		}
	}
}

func TestComplaintsOfRunsc(t *testing.T) {
	dir := t.TempDir()
	if got := lastLines(dir + "/none"); got != "" {
		t.Errorf("%q", got)
	}
	log := "I1201 info\nD1201 debug\nW1201 a  warning\n" + `{"msg":"it failed"}` + "\n"
	if err := os.WriteFile(dir+"/log", []byte(strings.Repeat("I1201 long\n", 20000)+log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := lastLines(dir + "/log"); got != `W1201 a warning; {"msg":"it failed"}` {
		t.Errorf("%q", got)
	}
}
