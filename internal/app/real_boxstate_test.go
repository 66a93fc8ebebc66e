//go:build integration

package app_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What tests of state do with a sandbox over the API.

// record is what the API says of a sandbox.
type record struct {
	ID, Status, Origin, Parent string
	FailReason                 string `json:"fail_reason"`
	BootNote                   string `json:"boot_note"`
	MemoryMB                   int    `json:"memory_mb"`
	DiskMB                     int    `json:"disk_mb"`
}

func (b *box) record() record {
	b.t.Helper()
	var r record
	b.s.call(b.t, "GET", b.path(""), nil, &r)
	return r
}

// of is another sandbox of the same server; it is deleted at the test's end.
func (b *box) of(id string) *box {
	other := &box{t: b.t, s: b.s, ID: id}
	b.t.Cleanup(func() { other.s.do(other.t, "DELETE", other.path(""), nil) })
	return other
}

func (b *box) fork(n int, more obj) []*box {
	b.t.Helper()
	body := obj{"n": n}
	for k, v := range more {
		body[k] = v
	}
	var forked struct {
		Children   []string
		PausedMs   float64            `json:"paused_ms"`
		DirtyBytes int64              `json:"dirty_bytes"`
		TimingsMs  map[string]float64 `json:"timings_ms"`
	}
	b.s.call(b.t, "POST", b.path("/fork"), body, &forked)
	b.t.Logf("fork %d: paused %.1f ms, %d KB dirty, %v", n, forked.PausedMs, forked.DirtyBytes>>10, forked.TimingsMs)
	if len(forked.Children) != n {
		b.t.Fatalf("a fork of %d gave %v", n, forked.Children)
	}
	var children []*box
	for _, id := range forked.Children {
		children = append(children, b.of(id))
	}
	return children
}

func (b *box) hibernate() {
	b.t.Helper()
	var r record
	b.s.call(b.t, "POST", b.path("/hibernate"), nil, &r)
	if r.Status != "hibernated" {
		b.t.Fatalf("after its hibernation it is %+v", r)
	}
}

func (b *box) wake() record {
	b.t.Helper()
	var r record
	b.s.call(b.t, "POST", b.path("/wake"), nil, &r)
	return r
}

func (b *box) checkpoint(kind string) string {
	b.t.Helper()
	var c struct{ ID string }
	b.s.call(b.t, "POST", b.path("/checkpoints"), obj{"kind": kind}, &c)
	b.t.Cleanup(func() { b.s.do(b.t, "DELETE", "/v1/checkpoints/"+c.ID, nil) })
	return c.ID
}

// follow opens the stream of a run of Python and waits for its first line.
func (b *box) follow(code string) <-chan event {
	b.t.Helper()
	events := b.s.stream(b.t, b.path("/exec"), obj{"language": "python", "code": code})
	for e := range events {
		if e.Type == "stdout" {
			return events
		}
	}
	b.t.Fatal("the run ended before it has printed")
	return nil
}

// last reads a stream to its end.
func last(t *testing.T, events <-chan event) event {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	var e event
	for {
		select {
		case next, ok := <-events:
			if !ok {
				return e
			}
			e = next
		case <-deadline:
			t.Fatalf("the stream does not end; its last event is %+v", e)
		}
	}
}

// happened is an event of a sandbox.
type happened struct {
	Type, State, Reason, Cause string
	Data                       map[string]string
}

// history returns the events of a sandbox until now.
func (b *box) history() []happened {
	b.t.Helper()
	status, body := b.s.do(b.t, "GET", "/v1/events?follow=false&sandbox="+b.ID, nil)
	if status != 200 {
		b.t.Fatalf("events: %d %s", status, body)
	}
	var list []happened
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var e happened
		if err := json.Unmarshal(data, &e); err != nil {
			b.t.Fatalf("%s: %v", data, err)
		}
		list = append(list, e)
	}
	return list
}

// count returns how many events of a type a sandbox has.
func (b *box) count(kind string) int {
	b.t.Helper()
	n := 0
	for _, e := range b.history() {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// checkClock asks a sandbox for its time, at once. What the call takes is no error of the clock, so
// a loaded host does not fail it; of several readings the best counts.
func (b *box) checkClock(when string) {
	b.t.Helper()
	const slack = 0.05
	best := math.Inf(1)
	for range 5 {
		before := time.Now()
		out := b.mustPython("import time; print(time.time())")
		after := time.Now()
		guest, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			b.t.Fatal(err)
		}
		lo, hi := seconds(before), seconds(after)
		best = min(best, max(0, lo-guest, guest-hi))
		if best == 0 {
			break
		}
	}
	if best > slack {
		b.t.Errorf("%s: the clock of the guest is off by %.3f s", when, best)
	}
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
