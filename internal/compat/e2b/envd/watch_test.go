package envd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/sandbox"
)

func TestWatchDirTellsWhatChanges(t *testing.T) {
	e := start(t)
	e.put("/w/old", "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := e.files(nil).WatchDir(ctx, &envdv1.WatchDirRequest{Path: "/w", Recursive: true, IncludeEntry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("the first event: %v %v", stream.Msg(), stream.Err())
	}
	e.put("/w/deep/new.txt", "22")
	for stream.Receive() {
		f := stream.Msg().GetFilesystem()
		if f.GetName() != "deep/new.txt" {
			continue
		}
		if f.Entry.GetPath() != "/w/deep/new.txt" || f.Entry.GetName() != "new.txt" || f.Entry.GetSize() != 2 {
			t.Errorf("%v", f)
		}
		return
	}
	t.Fatalf("the file was not told: %v", stream.Err())
}

func TestWatchErrors(t *testing.T) {
	e := start(t)
	e.put("/w/file", "1")
	for path, code := range map[string]connect.Code{"/none": connect.CodeNotFound, "/w/file": connect.CodeInvalidArgument} {
		stream, err := e.files(nil).WatchDir(t.Context(), &envdv1.WatchDirRequest{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || connect.CodeOf(stream.Err()) != code {
			t.Errorf("%s: %v", path, stream.Err())
		}
		stream.Close()
		if _, err := e.files(nil).CreateWatcher(t.Context(), &envdv1.CreateWatcherRequest{Path: path}); connect.CodeOf(err) != code {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := e.files(nil).GetWatcherEvents(t.Context(), &envdv1.GetWatcherEventsRequest{WatcherId: "none"})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
}

// events asks a watcher until it has told of name.
func (e *env) awaitEvent(id, name string, kind envdv1.EventType) {
	e.t.Helper()
	var all []string
	waitFor(e.t, fmt.Sprintf("%s of %s", kind, name), func() bool {
		res, err := e.files(nil).GetWatcherEvents(e.t.Context(), &envdv1.GetWatcherEventsRequest{WatcherId: id})
		if err != nil {
			e.t.Fatal(err)
		}
		for _, ev := range res.Events {
			all = append(all, ev.Name+" "+ev.Type.String())
		}
		return slices.Contains(all, name+" "+kind.String())
	})
}

func TestWatchersCollectUntilTheyAreRemoved(t *testing.T) {
	e := start(t)
	e.put("/w/old", "1")
	made, err := e.files(nil).CreateWatcher(t.Context(), &envdv1.CreateWatcherRequest{Path: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	e.put("/w/new", "1")
	e.awaitEvent(made.WatcherId, "new", envdv1.EventType_EVENT_TYPE_CREATE)
	if _, err := e.files(nil).Remove(t.Context(), &envdv1.RemoveRequest{Path: "/w/old"}); err != nil {
		t.Fatal(err)
	}
	e.awaitEvent(made.WatcherId, "old", envdv1.EventType_EVENT_TYPE_REMOVE)
	for i, want := range []connect.Code{0, connect.CodeNotFound} {
		_, err := e.files(nil).RemoveWatcher(t.Context(), &envdv1.RemoveWatcherRequest{WatcherId: made.WatcherId})
		if err != nil && connect.CodeOf(err) != want || err == nil && want != 0 {
			t.Errorf("removal %d: %v", i, err)
		}
	}
}

func TestWatchersAreBoundedAndEndWithTheirSandbox(t *testing.T) {
	e := start(t)
	e.put("/w/old", "1")
	var last string
	n := 0
	for ; n < 200; n++ {
		made, err := e.files(nil).CreateWatcher(t.Context(), &envdv1.CreateWatcherRequest{Path: "/w"})
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = made.WatcherId
	}
	if n != 32 {
		t.Errorf("%d watchers", n)
	}
	if err := e.Control.Delete(t.Context(), sandbox.DefaultProject, e.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the watcher has ended", func() bool {
		_, err := e.files(nil).GetWatcherEvents(t.Context(), &envdv1.GetWatcherEventsRequest{WatcherId: last})
		code := connect.CodeOf(err)
		if err != nil && code != connect.CodeUnavailable && code != connect.CodeNotFound {
			t.Fatal(err)
		}
		return err != nil && (code == connect.CodeNotFound || strings.Contains(err.Error(), "was not found"))
	})
}
