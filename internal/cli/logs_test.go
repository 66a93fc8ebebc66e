package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

func TestNewText(t *testing.T) {
	long := strings.Repeat("0123456789", 50)
	for _, c := range []struct {
		old, now, added string
		whole           bool
	}{
		{"", "", "", false},
		{"", "a\n", "a\n", false},
		{"a\n", "a\n", "", false},
		{"a\n", "a\nb", "b", false},
		{"x" + long + "end\n", long + "end\nmore", "more", false}, // its beginning is lost
		{long + "end\n", "another machine\n", "another machine\n", true},
		{"a\n", "", "", true},
	} {
		added, whole := newText(c.old, c.now)
		if added != c.added || whole != c.whole {
			t.Errorf("%.20q to %.20q: %q %v", c.old, c.now, added, whole)
		}
	}
}

func TestLogsAreInOrder(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 3, 4, s, 0, time.UTC) }
	event := func(s int, typ string) logLine { return eventLine(&v1.SandboxEvent{Time: at(s), Type: typ}) }
	var console []logLine
	for _, text := range []string{
		"[    1.0] early", "time=2026-01-02T03:04:30.5Z level=INFO msg=agent", "[    2.0] after it",
		"time=2026-01-02T03:04:20Z level=INFO msg=clock-set-back", "", "time=nonsense x",
	} {
		console = append(console, consoleLine(text)...)
	}
	var got []string
	for _, l := range mergeLogs([]logLine{event(1, "creating"), event(10, "running"), event(31, "hibernating")}, console) {
		got = append(got, l.Text[:min(len(l.Text), 8)]+".."+l.Text[max(0, len(l.Text)-5):])
	}
	want := "creating..:  ()|running:..:  ()|[    1.0..early|time=202..agent|[    2.0..er it|time=202..-back|time=non..nse x|hibernat..:  ()"
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("got  %s\nwant %s", all, want)
	}
}

// TestLogsFollow follows a sandbox whose console grows, and which is stopped in the end.
func TestLogsFollow(t *testing.T) {
	id := "sbx_" + strings.Repeat("a", 32)
	var mu sync.Mutex
	console, looks := "boot\nhalf", 0
	stop := make(chan struct{})
	send := func(w http.ResponseWriter, n int64, typ string) {
		b, _ := json.Marshal(v1.SandboxEvent{Id: n, Time: time.Now(), Sandbox: id, Type: typ, Reason: "why", Cause: "create"})
		fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", n, typ, b)
		w.(http.Flusher).Flush()
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/console"):
			mu.Lock()
			defer mu.Unlock()
			if looks++; looks == 2 {
				console += " done\n\x1b[31mred\n"
			}
			if looks == 3 {
				close(stop)
			}
			fmt.Fprint(w, console)
		case r.URL.Query().Get("follow") == "true":
			if since := r.URL.Query().Get("since"); since != "7" {
				t.Errorf("it follows from %q", since)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			<-stop
			send(w, 8, "stopped")
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			send(w, 7, "running")
		}
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	cmd := exec.Command("ramet", "logs", id, "-f", "--json")
	cmd.Env = append(os.Environ(), "RAMET_URL="+srv.URL, "RAMET_API_KEY=rmt_x", "HOME="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var texts []string
	for line := range strings.Lines(string(out)) {
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, l.Source+" "+l.Text)
	}
	want := "event running: why (create)|console boot|console half done|console \x1b[31mred|event stopped: why (create)"
	if got := strings.Join(texts, "|"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
