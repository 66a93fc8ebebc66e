package httpapi_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
)

func TestFiles(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	base := "/v1/sandboxes/" + id
	content := "\x00\xff binary \r\n\u0085"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     string // in the body
	}{
		{"missing", "GET", "/files?path=/root/a", "", 404, `"code":"file_not_found"`},
		{"write", "PUT", "/files?path=/root/a&mode=0600", content, 200, `"mode":"0600"`},
		{"read", "GET", "/files?path=/root/a", "", 200, content},
		{"relative", "GET", "/files?path=a", "", 200, content},
		{"stat", "GET", "/files/stat?path=/root/a", "", 200, `"type":"file"`},
		{"no parent", "PUT", "/files?path=/root/x/y/a", "1", 404, `"code":"file_not_found"`},
		{"parents", "PUT", "/files?path=/root/x/y/a&parents=true", "1", 200, `"size":1`},
		{"empty file", "PUT", "/files?path=/root/empty", "", 200, `"size":0`},
		{"read it", "GET", "/files?path=/root/empty", "", 200, ""},
		{"list", "GET", "/files/list?path=/root", "", 200, `"path":"/root/x"`},
		{"read a directory", "GET", "/files?path=/root/x", "", 409, `"code":"is_a_directory"`},
		{"list a file", "GET", "/files/list?path=/root/a", "", 409, `"code":"not_a_directory"`},
		{"remove a full directory", "DELETE", "/files?path=/root/x", "", 409, `"code":"directory_not_empty"`},
		{"remove it all", "DELETE", "/files?path=/root/x&recursive=true", "", 204, ""},
		{"remove nothing", "DELETE", "/files?path=/root/x", "", 404, `"code":"file_not_found"`},
		{"bad mode", "PUT", "/files?path=/root/a&mode=9", "1", 400, `"code":"invalid_mode"`},
		{"bad boolean", "PUT", "/files?path=/root/a&parents=maybe", "1", 400, `"code":"invalid_parameter"`},
		{"no path", "GET", "/files", "", 400, `"code":"missing_parameter"`},
		{"empty path", "GET", "/files?path=", "", 400, `"code":"invalid_path"`},
		{"NUL", "GET", "/files?path=%00", "", 400, `"code":"invalid_path"`},
		{"not UTF-8", "GET", "/files?path=%ff", "", 400, `"code":"invalid_path"`},
		{"long", "GET", "/files?path=" + strings.Repeat("x", 5000), "", 400, `"code":"invalid_path"`},
		{"bad user", "GET", "/files?path=/&user=a%0Ab", "", 400, `"code":"invalid_user"`},
		{"bad depth", "GET", "/files/list?path=/&depth=0", "", 400, `"code":"invalid_depth"`},
		{"depth is a word", "GET", "/files/list?path=/&depth=x", "", 400, `"code":"invalid_parameter"`},
		{"mkdir", "POST", "/files/mkdir", `{"path":"/root/d"}`, 200, `"type":"directory"`},
		{"mkdir again", "POST", "/files/mkdir", `{"path":"/root/d"}`, 409, `"code":"file_exists"`},
		{"move", "POST", "/files/move", `{"from":"/root/a","to":"/root/d/b"}`, 200, `"path":"/root/d/b"`},
		{"move over", "POST", "/files/move", `{"from":"/root/empty","to":"/root/d/b"}`, 409, `"code":"file_exists"`},
		{"chmod", "POST", "/files/attributes", `{"path":"/root/d/b","mode":"755"}`, 200, `"mode":"0755"`},
		{"nothing to change", "POST", "/files/attributes", `{"path":"/root/d/b"}`, 400, `"code":"nothing_to_change"`},
		{"not a tar", "PUT", "/archive?path=/root/t", "certainly not a tar", 400, `"code":"invalid_argument"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := e.with(t)
			header := []string{}
			if c.method == "PUT" {
				header = []string{"Content-Type", "application/octet-stream"}
			}
			res, body := e.do(c.method, base+c.path, c.body, header...)
			if res.StatusCode != c.status || !strings.Contains(string(body), c.want) {
				t.Errorf("%d %q", res.StatusCode, body)
			}
			if res.StatusCode >= 400 {
				checkError(t, res, body)
			}
		})
	}
}

func TestRanges(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	url := "/v1/sandboxes/" + id + "/files?path=/root/r"
	e.do("PUT", url, "0123456789")
	for header, want := range map[string]struct {
		status       int
		body, range_ string
	}{
		"bytes=2-4":     {206, "234", "bytes 2-4/10"},
		"bytes=7-":      {206, "789", "bytes 7-9/10"},
		"bytes=-3":      {206, "789", "bytes 7-9/10"},
		"bytes=-99":     {206, "0123456789", "bytes 0-9/10"},
		"bytes=5-99":    {206, "56789", "bytes 5-9/10"},
		"bytes=0-0":     {206, "0", "bytes 0-0/10"},
		"bytes=10-":     {416, "", "bytes */10"},
		"bytes=1-2,4-5": {200, "0123456789", ""},
		"bytes=4-2":     {200, "0123456789", ""},
		"lines=1-2":     {200, "0123456789", ""},
		"bytes=x-":      {200, "0123456789", ""},
	} {
		res, body := e.do("GET", url, "", "Range", header)
		if res.StatusCode != want.status || res.Header.Get("Content-Range") != want.range_ || want.status < 300 && string(body) != want.body {
			t.Errorf("%s: %d %q %q", header, res.StatusCode, res.Header.Get("Content-Range"), body)
		}
	}
	res, _ := e.do("HEAD", url, "")
	if res.StatusCode != 200 || res.Header.Get("Content-Length") != "10" {
		t.Errorf("HEAD: %d %v", res.StatusCode, res.Header)
	}
}

// endless is n bytes of a pattern.
type endless struct{ left int64 }

func (r *endless) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), r.left))
	for i := range p[:n] {
		p[i] = byte((r.left - int64(i)) % 251)
	}
	r.left -= int64(n)
	return n, nil
}

func TestLargeFileWithFlatMemory(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	const size = 96 << 20
	url := e.url + "/v1/sandboxes/" + id + "/files?path=/root/big"
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	r, _ := http.NewRequestWithContext(t.Context(), "PUT", url, &endless{size})
	r.Header.Set("Authorization", "Bearer "+e.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	want, got := sha256.New(), sha256.New()
	if _, err := io.Copy(want, &endless{size}); err != nil {
		t.Fatal(err)
	}
	r, _ = http.NewRequestWithContext(t.Context(), "GET", url, nil)
	r.Header.Set("Authorization", "Bearer "+e.key)
	if res, err = http.DefaultClient.Do(r); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(got, res.Body)
	if err != nil || n != size || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes, %v, equal %v", n, err, bytes.Equal(want.Sum(nil), got.Sum(nil)))
	}
	runtime.ReadMemStats(&after)
	// HeapSys is a high-water mark: neither end ever held a good part of the file.
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > size/2 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
}

// broken fails after some bytes.
type broken struct{ left int }

func (r *broken) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errors.New("the client gave up")
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

func TestUploadThatBreaksOffLeavesTheOldFile(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	path := "/v1/sandboxes/" + id + "/files?path=/root/f"
	if res, body := e.do("PUT", path, "old"); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	for _, length := range []int64{-1, 4 << 20} {
		r, _ := http.NewRequestWithContext(t.Context(), "PUT", e.url+path, &broken{2 << 20})
		r.ContentLength = length
		r.Header.Set("Authorization", "Bearer "+e.key)
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
			t.Errorf("answered %d", res.StatusCode)
		}
		if _, body := e.do("GET", path, ""); string(body) != "old" {
			t.Errorf("the file has %d bytes", len(body))
		}
	}
}

func TestArchives(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range map[string]string{"a": "1", "sub/b": "22"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	url := "/v1/sandboxes/" + id + "/archive?path=/root/t"
	res, body := e.do("PUT", url, buf.String(), "Content-Type", "application/x-tar")
	if res.StatusCode != 200 || string(body) != "{\"bytes\":3,\"files\":2}\n" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	res, body = e.do("GET", url, "")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-tar" || res.Header.Get("Content-Disposition") != `attachment; filename="t.tar"` {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		files[h.Name] = string(b)
	}
	if files["a"] != "1" || files["sub/b"] != "22" {
		t.Errorf("%v", files)
	}
	if res, body := e.do("GET", "/v1/sandboxes/"+id+"/archive?path=/none", ""); res.StatusCode != 404 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// checkError holds every error to the one form.
func checkError(t *testing.T, res *http.Response, body []byte) {
	t.Helper()
	var got rametv1.Error
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Errorf("%q: %v", body, err)
		return
	}
	if got.Error == "" || got.Code == "" || got.RequestId == "" || got.RequestId != res.Header.Get("X-Request-Id") {
		t.Errorf("%+v", got)
	}
	if strings.HasSuffix(got.Error, ".") || strings.Contains(got.Error, "\n") {
		t.Errorf("not one sentence without its stop: %q", got.Error)
	}
}
