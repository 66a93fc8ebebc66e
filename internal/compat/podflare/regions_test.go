package podflare

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// region starts a server that answers with its name and what it was asked.
func region(t *testing.T, name string, others map[string]*url.URL) *url.URL {
	g := &Regions{
		Local: name, Others: others, Log: slog.New(slog.DiscardHandler),
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := map[sandbox.Kind]int{sandbox.NotFound: 404, sandbox.Unavailable: 503}[sandbox.KindOf(err)]
			http.Error(w, err.Error(), status)
		},
	}
	server := httptest.NewServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s %s %s %s", name, r.Method, r.URL, r.Header.Get("Authorization"), body)
	})))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func ask(t *testing.T, u *url.URL, path, header string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+path, strings.NewReader("hi"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer k")
	if header != "" {
		r.Header.Set(regionHeader, header)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(b))
}

func TestRegionsAreHonouredOrRefused(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	nowhere, err := url.Parse(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	far := region(t, "far", nil)
	here := region(t, "here", map[string]*url.URL{"far": far, "gone": nowhere, "liar": far})
	for _, c := range []struct {
		path, header string
		status       int
		want         string
	}{
		{"/v1/sandboxes?a=b", "", 200, "here POST /v1/sandboxes?a=b Bearer k hi"},
		{"/v1/sandboxes", "here", 200, "here POST /v1/sandboxes Bearer k hi"},
		{"/r/here/v1/sandboxes?a=b", "", 200, "here POST /v1/sandboxes?a=b Bearer k hi"},
		{"/r/HERE/v1/sandboxes", "far", 200, "here POST /v1/sandboxes Bearer k hi"}, // the path wins
		{"/v1/sandboxes", " Far ", 200, "far POST /v1/sandboxes Bearer k hi"},
		{"/r/far/v1/sandboxes/x/exec?a=b", "", 200, "far POST /v1/sandboxes/x/exec?a=b Bearer k hi"},
		{"/v1/sandboxes", "mars", 404, `region "mars" is not known here; this server is region here and knows far, gone, liar`},
		{"/r/mars/v1/sandboxes", "", 404, `region "mars" is not known here; this server is region here and knows far, gone, liar`},
		{"/r//v1/sandboxes", "", 404, `region "" is not known here; this server is region here and knows far, gone, liar`},
		{"/v1/sandboxes", "gone", 503, "the server of region gone cannot be reached; try again in a moment"},
		{"/v1/sandboxes", "liar", 404, `region "liar" was asked for, and another server takes this one, which is region far, for it`},
	} {
		status, body := ask(t, here, c.path, c.header)
		if status != c.status || !strings.HasPrefix(body, c.want) {
			t.Errorf("%s %q: %d %q, want %d %q", c.path, c.header, status, body, c.status, c.want)
		}
	}
}

func TestServersThatTakeEachOtherForARegionEnd(t *testing.T) {
	var a url.URL
	b := region(t, "b", map[string]*url.URL{"mars": &a})
	a = *region(t, "a", map[string]*url.URL{"mars": b})
	if status, body := ask(t, &a, "/v1/sandboxes", "mars"); status != 404 || !strings.Contains(body, "takes this one, which is region b, for it") {
		t.Errorf("%d %s", status, body)
	}
}

// A line of a stream goes out when it comes, not when the stream ends.
func TestPassedOnStreamsFlow(t *testing.T) {
	release := make(chan struct{})
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
			t.Error("the first line never arrived")
		}
	}))
	defer far.Close()
	u, err := url.Parse(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	here := region(t, "here", map[string]*url.URL{"far": u})
	res, err := http.Get(here.String() + "/r/far/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 4)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "one\n" {
		t.Errorf("%q %v", buf, err)
	}
	close(release)
}
