package envd

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func FuzzFileName(f *testing.F) {
	for _, s := range []string{`form-data; name="file"; filename="/a/b c"`, `form-data; filename*=UTF-8''%e2%82%ac`, `x; filename="a\\b"`, "", `;;="`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name := fileName(s); len(name) > len(s)*4 {
			t.Fatalf("%q became %d bytes", s, len(name))
		}
	})
}

func FuzzSigned(f *testing.F) {
	f.Add("/a", "read", "", "", "v1_x")
	f.Add("/a:b", "write", "user", "1700000000", "")
	now := time.Unix(1700000000, 0)
	f.Fuzz(func(t *testing.T, path, op, user, exp, sig string) {
		const token = "secret"
		q := url.Values{"path": {path}, "username": {user}, "signature": {sig}}
		if exp != "" {
			q.Set("signature_expiration", exp)
		}
		right := Signature(token, path, op, user, exp)
		if err := Signed(token, op, q, now); err == nil && sig != right {
			t.Fatalf("%q is taken for a signature", sig)
		}
		q.Set("signature", right)
		if err := Signed(token, op, q, now); err != nil && exp == "" {
			t.Fatalf("%v", err)
		}
		if Signed("another", op, q, now) == nil {
			t.Fatal("it holds with another token")
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add("X-Metadata-A", "b")
	f.Add("x-metadata-", "")
	f.Add("X-Metadata-é", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		got, err := metadata(http.Header{name: {value}})
		if err != nil && len(got) > 0 {
			t.Fatal("both")
		}
		size := 0
		for k, v := range got {
			size += len(k) + len(v)
			if !strings.HasPrefix(k, attributePrefix) || k != strings.ToLower(k) || strings.ContainsAny(v, "\x00\n") {
				t.Fatalf("%q: %q", k, v)
			}
		}
		if size > maxMetadata {
			t.Fatalf("%d bytes", size)
		}
	})
}

func FuzzCodings(f *testing.F) {
	for _, s := range []string{"gzip", "gzip;q=0", "*;q=0", "identity;q=0.0, gzip", ";;,,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, zipped := codings([]string{s}); zipped && !strings.Contains(strings.ToLower(s), "gzip") {
			t.Fatalf("%q asks for gzip", s)
		}
	})
}
