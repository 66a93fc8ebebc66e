package agent

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
)

func TestMessagesTakeWhatIsNoText(t *testing.T) {
	for _, c := range []struct{ in, want proto.Message }{
		{
			&agentv1.FileInfo{Path: "a\xffb", LinkTarget: "\xc3", Attributes: map[string]string{"k\xfe": "v\xfe", "k": "v"}, Size: 3},
			&agentv1.FileInfo{Path: "a\uFFFDb", LinkTarget: "\uFFFD", Attributes: map[string]string{"k\uFFFD": "v\uFFFD", "k": "v"}, Size: 3},
		},
		{
			&agentv1.ListResponse{Runs: []*agentv1.RunInfo{{Argv: []string{"x", "\x80y"}}, {Cwd: "/\xff", Exit: &agentv1.Exit{Message: "no /\xff"}}}},
			&agentv1.ListResponse{Runs: []*agentv1.RunInfo{{Argv: []string{"x", "\uFFFDy"}}, {Cwd: "/\uFFFD", Exit: &agentv1.Exit{Message: "no /\uFFFD"}}}},
		},
		{ // bytes are what they are
			&agentv1.Event{Seq: 7, Kind: &agentv1.Event_Stdout{Stdout: []byte("\xff")}},
			&agentv1.Event{Seq: 7, Kind: &agentv1.Event_Stdout{Stdout: []byte("\xff")}},
		},
	} {
		before := proto.Clone(c.in)
		b, err := codec{}.Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		got := c.want.ProtoReflect().New().Interface()
		if err := (codec{}).Unmarshal(b, got); err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%v, %v; want %v", got, err, c.want)
		}
		if !proto.Equal(c.in, before) {
			t.Errorf("the message itself was changed: %v", c.in)
		}
	}
	if _, err := (codec{}).Marshal("x"); err == nil {
		t.Error("what is no message was encoded")
	}
}

func TestANameThatIsNoTextHidesNoDirectory(t *testing.T) {
	machine := NewMachine(noExec{}, virtualMachine{freezer{t.TempDir()}}, slog.New(slog.DiscardHandler))
	s := httptest.NewUnstartedServer(Handler(machine, noExec{}, agentv1connect.UnimplementedPortsHandler{}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	for _, name := range []string{"plain", "a\xffb", "d\xfe/x\xfd"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("t\xff", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	list, err := agentv1connect.NewFilesClient(s.Client(), s.URL).List(t.Context(), &agentv1.ListFilesRequest{Path: dir, Depth: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var got []string
	for list.Receive() {
		name, err := filepath.Rel(dir, list.Msg().Path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name+list.Msg().LinkTarget)
	}
	slices.Sort(got)
	if want := []string{"a\uFFFDb", "d\uFFFD", "d\uFFFD/x\uFFFD", "linkt\uFFFD", "plain"}; list.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, list.Err(), want)
	}
}
