package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrigins(t *testing.T) {
	for in, want := range map[string][]string{
		"":                        nil,
		"*":                       {"*"},
		"https://app.example.com": {"https://app.example.com"},
		"http://localhost:5173,HTTPS://App.Example.com:443": {"http://localhost:5173", "https://app.example.com"},
		"http://a:80, http://a ,http://a:443,http://a:0080": {"http://a", "http://a:443"},
		"http://127.0.0.1:3000,http://[0:0::1]:3000":        {"http://127.0.0.1:3000", "http://[::1]:3000"},
		"https://xn--bcher-kva.example":                     {"https://xn--bcher-kva.example"},
	} {
		got, err := parseOrigins(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", in, err, d)
		}
	}
	for in, want := range map[string]string{
		"app.example.com":               "http://",
		"localhost:5173":                "http://",
		"null":                          "http://",
		"file://":                       "http://",
		"ftp://a.example":               "http://",
		"https:app.example.com":         "http://",
		"https://":                      "host",
		"https://app.example.com/":      "slash",
		"https://app.example.com/x":     "slash",
		"https://app.example.com?":      "slash",
		"https://app.example.com#":      "slash",
		"https://me@app.example.com":    "user",
		"https://*.example.com":         "wildcards",
		"https://bücher.example":        "xn--",
		"https://a.example:0":           "port",
		"https://a.example:65536":       "port",
		"https://a.example:":            "port",
		"https://a.example:x":           "http://",
		"http://[fe80::1%25eth0]:1":     "zone",
		"*,https://a.example":           "alone",
		"https://a.example, https://b/": "https://b/",
		manyOrigins(maxOrigins + 1):     "at most",
	} {
		if got, err := parseOrigins(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func manyOrigins(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "http://host%d,", i)
	}
	return b.String()
}

func TestOriginsComeFromAllPlaces(t *testing.T) {
	r, err := Load(sources(t, nil, nil, "cors_origins: [https://a.example, 'http://b.example:80']\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"https://a.example", "http://b.example"}, r.Server().CORSOrigins); d != "" {
		t.Error(d)
	}
	r, err = Load(sources(t, map[string]string{"RAMET_CORS_ORIGINS": "*"}, nil, "cors_origins: https://a.example\n"))
	if err != nil || len(r.Server().CORSOrigins) != 1 || r.Server().CORSOrigins[0] != AnyOrigin {
		t.Errorf("%v, %v", r, err)
	}
	_, err = Load(sources(t, map[string]string{"RAMET_CORS_ORIGINS": "https://a.example/"}, nil, ""))
	if err == nil || !strings.Contains(err.Error(), "cors_origins (environment RAMET_CORS_ORIGINS)") {
		t.Errorf("error %v", err)
	}
}

// Without keys "*" would open the sandboxes to every page of the web.
func TestAnyOriginNeedsKeys(t *testing.T) {
	_, err := Load(sources(t, map[string]string{"RAMET_NO_AUTH": "true", "RAMET_CORS_ORIGINS": "*"}, nil, ""))
	if err == nil || !strings.Contains(err.Error(), "no_auth and cors_origins=*") {
		t.Errorf("error %v", err)
	}
	if _, err = Load(sources(t, map[string]string{"RAMET_NO_AUTH": "true", "RAMET_CORS_ORIGINS": "http://localhost:5173"}, nil, "")); err != nil {
		t.Error(err)
	}
}
