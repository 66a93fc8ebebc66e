package envd_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/compat/e2b/e2btest"
	"ramet.dev/ramet/internal/compat/e2b/envd"
)

var octets = header{"Content-Type": "application/octet-stream"}

type writtenFile struct{ Path, Name, Type string }

func TestDownload(t *testing.T) {
	e := start(t)
	e.put("/f/hello.txt", "hello, world")
	e.put("/f/empty", "")
	res, body := e.do("GET", "/files?path=/f/hello.txt", "", nil)
	if res.StatusCode != 200 || body != "hello, world" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") || res.ContentLength != 12 {
		t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
	}
	res, body = e.do("GET", "/files?path=/f/hello.txt", "", header{"Range": "bytes=7-11"})
	if res.StatusCode != 206 || body != "world" || res.Header.Get("Content-Range") != "bytes 7-11/12" {
		t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
	}
	if res, _ = e.do("GET", "/files?path=/f/hello.txt", "", header{"Range": "bytes=50-"}); res.StatusCode != 416 {
		t.Errorf("behind the end: %d", res.StatusCode)
	}
	if res, body = e.do("HEAD", "/files?path=/f/hello.txt", "", nil); res.StatusCode != 200 || res.ContentLength != 12 || body != "" {
		t.Errorf("HEAD: %d %d %q", res.StatusCode, res.ContentLength, body)
	}
	if res, body = e.do("GET", "/files?path=/f/empty", "", header{"Accept-Encoding": "gzip"}); res.StatusCode != 200 || res.Header.Get("Content-Length") != "0" || body != "" {
		t.Errorf("empty: %d %v %q", res.StatusCode, res.Header, body)
	}
}

func TestDownloadWithGzip(t *testing.T) {
	e := start(t)
	text := strings.Repeat("again and again ", 1000)
	e.put("/f/long", text)
	for accept, coded := range map[string]bool{"gzip": true, "gzip;q=1.0, identity": true, "gzip, deflate, br": false, "identity": false, "gzip;q=0": false, "identity;q=0, gzip, br": true} {
		res, body := e.do("GET", "/files?path=/f/long", "", header{"Accept-Encoding": accept})
		if got := res.Header.Get("Content-Encoding") == "gzip"; got != coded || res.StatusCode != 200 {
			t.Errorf("%s: %d %v", accept, res.StatusCode, res.Header)
			continue
		}
		if coded {
			z, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(z)
			if err != nil || string(b) != text {
				t.Errorf("%s: %d bytes, %v", accept, len(b), err)
			}
		} else if body != text {
			t.Errorf("%s: other content", accept)
		}
	}
	for _, h := range []header{{"Accept-Encoding": "identity;q=0"}, {"Accept-Encoding": "*;q=0"}, {"Accept-Encoding": "identity;q=0, gzip", "Range": "bytes=0-3"}} {
		res, body := e.do("GET", "/files?path=/f/long", "", h)
		if code, _ := message(t, body); res.StatusCode != 406 || code != 406 {
			t.Errorf("%v: %d %s", h, res.StatusCode, body)
		}
	}
}

func TestDownloadErrors(t *testing.T) {
	e := start(t)
	e.put("/f/a", "a")
	for path, want := range map[string]int{"/files?path=/none": 404, "/files?path=/f": 400, "/files": 400, "/files?path=/f/a/b": 400, "/files?path=" + strings.Repeat("a", 5000): 400} {
		res, body := e.do("GET", path, "", nil)
		if code, text := message(t, body); res.StatusCode != want || code != want || text == "" {
			t.Errorf("%.40s: %d %s", path, res.StatusCode, body)
		}
	}
	if res, _ := e.do("PUT", "/files?path=/f/a", "x", nil); res.StatusCode != 405 {
		t.Errorf("PUT: %d", res.StatusCode)
	}
}

// form makes a multipart body whose parts have the given filenames.
func form(t *testing.T, files ...[2]string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range files {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", fmt.Sprintf(`form-data; name="file"; filename="%s"`, f[0]))
		h.Set("Content-Type", "application/octet-stream")
		p, err := w.CreatePart(h)
		if err == nil {
			_, err = io.WriteString(p, f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func TestUploadOfForms(t *testing.T) {
	e := start(t)
	for name, test := range map[string]struct {
		query string
		files [][2]string
		paths []string
	}{
		"one, by the query":     {"?path=/up/one.txt", [][2]string{{"ignored/name", "1"}}, []string{"/up/one.txt"}},
		"one, by its name":      {"", [][2]string{{"/up/deep/two.txt", "2"}}, []string{"/up/deep/two.txt"}},
		"several":               {"", [][2]string{{"/up/x/3", "3"}, {"rel/4", "4"}, {"/up/ünï ☃.txt", "5"}}, []string{"/up/x/3", "/root/rel/4", "/up/ünï ☃.txt"}},
		"escaped in its quotes": {"", [][2]string{{`/up/back\\slash`, "6"}}, []string{`/up/back\slash`}},
	} {
		body, kind := form(t, test.files...)
		res, answer := e.do("POST", "/files"+test.query, body, header{"Content-Type": kind})
		var got []writtenFile
		if err := json.Unmarshal([]byte(answer), &got); err != nil || res.StatusCode != 200 || len(got) != len(test.paths) {
			t.Errorf("%s: %d %s", name, res.StatusCode, answer)
			continue
		}
		for i, f := range got {
			if f.Path != test.paths[i] || f.Type != "file" || !strings.HasSuffix(f.Path, "/"+f.Name) {
				t.Errorf("%s: %+v", name, f)
			}
			if _, text := e.do("GET", "/files?path="+url.QueryEscape(f.Path), "", nil); text != test.files[i][1] {
				t.Errorf("%s: %s has %q", name, f.Path, text)
			}
		}
	}
}

func TestUploadErrors(t *testing.T) {
	e := start(t)
	e.put("/dir/file", "x")
	twice, kind := form(t, [2]string{"/same", "1"}, [2]string{"/same", "2"})
	none, noneKind := form(t)
	for name, test := range map[string]struct {
		path, body, kind, encoding string
		status                     int
	}{
		"no type":           {"/files?path=/a", "x", "", "", 400},
		"another type":      {"/files?path=/a", "x", "text/plain", "", 400},
		"no path":           {"/files", "x", "application/octet-stream", "", 400},
		"a directory":       {"/files?path=/dir", "x", "application/octet-stream", "", 400},
		"below a file":      {"/files?path=/dir/file/x", "x", "application/octet-stream", "", 400},
		"not gzip":          {"/files?path=/a", "x", "application/octet-stream", "gzip", 400},
		"another encoding":  {"/files?path=/a", "x", "application/octet-stream", "br", 400},
		"one path twice":    {"/files", twice, kind, "", 400},
		"no file":           {"/files", none, noneKind, "", 400},
		"a form cut short":  {"/files", twice[:len(twice)/3], kind, "", 400},
		"no form at all":    {"/files", "hello", kind, "", 400},
		"a path with a NUL": {"/files?path=%00", "x", "application/octet-stream", "", 400},
	} {
		res, body := e.do("POST", test.path, test.body, header{"Content-Type": test.kind, "Content-Encoding": test.encoding})
		if code, text := message(t, body); res.StatusCode != test.status || code != test.status || text == "" {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
}

func TestUploadWithGzip(t *testing.T) {
	e := start(t)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := io.WriteString(w, "plain text"); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	h := header{"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
	if res, body := e.do("POST", "/files?path=/z", z.String(), h); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if _, body := e.do("GET", "/files?path=/z", "", nil); body != "plain text" {
		t.Errorf("%q", body)
	}
	if res, body := e.do("POST", "/files?path=/z2", z.String()[:z.Len()-6], h); res.StatusCode != 400 {
		t.Errorf("cut short: %d %s", res.StatusCode, body)
	}
	if res, _ := e.do("GET", "/files?path=/z2", "", nil); res.StatusCode != 404 {
		t.Error("a part of an upload is there")
	}
}

// brokenBody ends with an error.
type brokenBody struct{ n int }

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.n == 0 {
		return 0, errors.New("the client has died")
	}
	n := min(b.n, len(p))
	b.n -= n
	return n, nil
}

func TestAnUploadThatBreaksOffLeavesNothing(t *testing.T) {
	e := start(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/files?path=/broken/off", &brokenBody{1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.http(withToken(octets)).Do(r); err == nil {
		res.Body.Close()
		t.Fatal("it has not broken off")
	}
	waitFor(t, "nothing is left of it", func() bool {
		res, err := e.files(nil).ListDir(t.Context(), listing("/broken"))
		return err != nil || len(res.Entries) == 0
	})
	if res, _ := e.do("GET", "/files?path=/broken/off", "", nil); res.StatusCode != 404 {
		t.Errorf("%d", res.StatusCode)
	}
}

// zeros are n bytes.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := int(min(z.n, int64(len(p))))
	clear(p[:n])
	z.n -= int64(n)
	return n, nil
}

func TestLargeFilesGoThroughWithFlatMemory(t *testing.T) {
	e := start(t)
	const size = 192 << 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/files?path=/large", &zeros{size})
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.http(withToken(octets)).Do(r)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	r, err = http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/files?path=/large", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err = e.http(withToken(nil)).Do(r); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || n != size {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 96<<20 {
		t.Errorf("%d MiB more memory", grown>>20)
	}
}

func TestTokensAndSignatures(t *testing.T) {
	e := start(t)
	e.put("/s/a b.txt", "secret")
	soon, past := strconv.FormatInt(time.Now().Unix()+600, 10), strconv.FormatInt(time.Now().Unix()-1, 10)
	sign := func(path, op, user, exp string) string {
		q := url.Values{"path": {path}, "signature": {envd.Signature(e2btest.Token, path, op, user, exp)}}
		if user != "" {
			q.Set("username", user)
		}
		if exp != "" {
			q.Set("signature_expiration", exp)
		}
		return "/files?" + q.Encode()
	}
	const path = "/s/a b.txt"
	for name, test := range map[string]struct {
		method, path string
		h            header
		status       int
	}{
		"nothing":               {"GET", "/files?path=/s/a+b.txt", nil, 401},
		"another token":         {"GET", "/files?path=/s/a+b.txt", header{"X-Access-Token": "x"}, 401},
		"a signature":           {"GET", sign(path, "read", "", ""), nil, 200},
		"of a user":             {"GET", sign(path, "read", "root", ""), nil, 200},
		"for a while":           {"GET", sign(path, "read", "", soon), nil, 200},
		"that is over":          {"GET", sign(path, "read", "", past), nil, 401},
		"with a wrong time":     {"GET", sign(path, "read", "", "soon"), nil, 401},
		"to write":              {"GET", sign(path, "write", "", ""), nil, 401},
		"of another user":       {"GET", sign(path, "read", "root", "") + "&username=user", nil, 200}, // the first counts
		"to read":               {"POST", sign(path, "read", "", ""), octets, 401},
		"to write, and writing": {"POST", sign("/s/new", "write", "", soon), octets, 200},
		"RPC without":           {"POST", "/process.Process/List", header{"Content-Type": "application/json"}, 401},
		"metrics without":       {"GET", "/metrics", nil, 401},
		"envs without":          {"GET", "/envs", nil, 401},
		"health without":        {"GET", "/health", nil, 204},
	} {
		body := ""
		if test.method == "POST" {
			body = "{}"
		}
		res, answer := e.raw(test.method, test.path, body, test.h)
		if res.StatusCode != test.status {
			t.Errorf("%s: %d %s", name, res.StatusCode, answer)
		}
		if res.StatusCode == 401 {
			if code, text := message(t, answer); code != 401 || text == "" {
				t.Errorf("%s: %s", name, answer)
			}
		}
	}
	tampered := strings.Replace(sign(path, "read", "", soon), "path=%2Fs%2Fa", "path=%2Fs%2Fb", 1)
	if res, _ := e.raw("GET", tampered, "", nil); res.StatusCode != 401 {
		t.Errorf("another path: %d", res.StatusCode)
	}
}

func TestTheSignatureIsThatOfTheClients(t *testing.T) {
	// Made by the Python client's get_signature.
	const want = "v1_w5chDeeFjwHk8HmYFt1lWo7WHcaxtxbVKzlJj56pzV0"
	if got := envd.Signature("tok", "/a/b", "read", "user", "1700000000"); got != want {
		t.Errorf("%s", got)
	}
}

func TestComposition(t *testing.T) {
	e := start(t)
	for i := range 3 {
		e.put(fmt.Sprintf("/parts/%d", i), strings.Repeat(strconv.Itoa(i), 1000))
	}
	res, body := e.do("POST", "/files/compose", `{"source_paths":["/parts/0","/parts/1","/parts/2"],"destination":"/whole/file"}`, nil)
	var got writtenFile
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 || got.Path != "/whole/file" || got.Name != "file" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if _, text := e.do("GET", "/files?path=/whole/file", "", nil); text != strings.Repeat("0", 1000)+strings.Repeat("1", 1000)+strings.Repeat("2", 1000) {
		t.Errorf("%d bytes", len(text))
	}
	if res, _ := e.do("GET", "/files?path=/parts/1", "", nil); res.StatusCode != 404 {
		t.Errorf("a part is left: %d", res.StatusCode)
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"source_paths":[],"destination":"/x"}`, `{"source_paths":["/none"]}`} {
		if res, body := e.do("POST", "/files/compose", bad, nil); res.StatusCode != 400 {
			t.Errorf("%s: %d %s", bad, res.StatusCode, body)
		}
	}
	if res, _ := e.do("POST", "/files/compose", `{"source_paths":["/none"],"destination":"/x"}`, nil); res.StatusCode != 404 {
		t.Errorf("a part that is not there: %d", res.StatusCode)
	}
}

func TestMetadataIsChecked(t *testing.T) {
	e := start(t)
	for name, h := range map[string]header{
		"not printable": {"X-Metadata-A": "é"},
		"no name":       {"X-Metadata-": "x"},
		"too long":      {"X-Metadata-A": strings.Repeat("x", 4000)},
	} {
		h["Content-Type"] = "application/octet-stream"
		if res, body := e.do("POST", "/files?path=/m", "x", h); res.StatusCode != 400 {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	res, body := e.do("POST", "/files?path=/m", "x", header{"Content-Type": "application/octet-stream", "X-Metadata-Who": "me", "X-Metadata-Run_ID": "7"})
	var got []struct{ Metadata map[string]string }
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 || got[0].Metadata["who"] != "me" || got[0].Metadata["run_id"] != "7" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	e := start(t)
	for _, path := range []string{"/", "/init", "/upgrade", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/files/other"} {
		res, body := e.do("POST", path, "{}", header{"Content-Type": "application/json"})
		if code, _ := message(t, body); res.StatusCode != 404 || code != 404 {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

func TestMetricsAndEnvironment(t *testing.T) {
	e := start(t)
	res, body := e.do("GET", "/metrics", "", nil)
	var m struct {
		Ts       int64
		CPUCount int `json:"cpu_count"`
		MemTotal int `json:"mem_total"`
		MemUsed  int `json:"mem_used"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || res.StatusCode != 200 || m.MemTotal != 1<<30 || m.MemUsed != 1<<29 || m.CPUCount == 0 || m.Ts == 0 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if _, body := e.do("GET", "/envs", "", nil); body != `{"GIVEN":"at-create"}` {
		t.Errorf("%s", body)
	}
}
