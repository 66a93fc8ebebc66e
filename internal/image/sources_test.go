package image

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const deb822 = `Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
 bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://deb.thirdparty.example/node_20.x
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
`

func TestHostSources(t *testing.T) {
	main := []string{"main"}
	public := []source{
		{publicMirror, "bookworm", main}, {publicMirror, "bookworm-updates", main}, {publicSecurityMirror, "bookworm-security", main},
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []source
	}{
		"nothing configured": {nil, public},
		"deb822": {map[string]string{"sources.list.d/debian.sources": deb822}, []source{
			{"http://mirror.example/debian", "bookworm", []string{"main", "contrib"}},
			{"http://mirror.example/debian", "bookworm-updates", []string{"main", "contrib"}},
		}},
		"one line": {map[string]string{"sources.list": `
# deb http://comment.example/debian bookworm main
deb http://m.example/debian-security bookworm-security main # trailing
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://m.example/x/deb12 bookworm main non-free-firmware
deb-src http://src.example/debian bookworm main
deb [signed-by=/etc/apt/keyrings/docker.asc] https://docker.example/linux/debian bookworm stable
deb [signed-by=/etc/apt/keyrings/other.asc] https://other.example/debian bookworm main
deb https://vendor.example/debian/12/prod bookworm main
deb cdrom:[Debian]/ bookworm main
deb file:/srv/debian bookworm main
deb [broken http://m.example/debian bookworm main
`}, []source{
			{"https://m.example/x/deb12", "bookworm", []string{"main", "non-free-firmware"}},
			{"http://m.example/debian-security", "bookworm-security", main},
		}},
		"same twice": {map[string]string{
			"sources.list":          "deb http://m.example/debian bookworm main\n",
			"sources.list.d/a.list": "deb http://m.example/debian/ bookworm main\n",
			"sources.list.d/b.off":  "deb http://off.example/debian bookworm main\n",
		}, []source{{"http://m.example/debian", "bookworm", main}}},
		"other release":        {map[string]string{"sources.list": "deb http://m.example/debian trixie main\n"}, public},
		"only third parties":   {map[string]string{"sources.list.d/v.list": "deb https://v.example/debian bookworm stable\n"}, public},
		"security alone":       {map[string]string{"sources.list": "deb http://m.example/debian-security bookworm-security main\n"}, public},
		"quote in the address": {map[string]string{"sources.list": "deb http://m.example/\"/debian bookworm main\n"}, public},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := hostSources(dir, "bookworm")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAptOptions(t *testing.T) {
	got := parseAptConfig(`APT "";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::http::Proxy::local.example "DIRECT";
Acquire::https::CaInfo "/etc/ssl/company.pem";
Acquire::https::Proxy "http://me:secret@proxy.example:3142";
Acquire::http::Proxy-Auto-Detect "/usr/local/bin/find-proxy";
Acquire::Check-Valid-Until "false";
Acquire::cdrom::mount "/media/cdrom";
Acquire::http::Timeout "30";
DPkg::Post-Invoke:: "rm -rf /";
Acquire::Retries "3"
`)
	want := []aptOption{
		{"Acquire::http::Proxy", "http://proxy.example:3142"},
		{"Acquire::http::Proxy::local.example", "DIRECT"},
		{"Acquire::https::CaInfo", "/etc/ssl/company.pem"},
		{"Acquire::https::Proxy", "http://me:secret@proxy.example:3142"},
		{"Acquire::Check-Valid-Until", "false"},
		{"Acquire::http::Timeout", "30"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	guest := forGuest(append(got, aptOption{"Acquire::http::Proxy::x", "http://127.0.0.1:3142"}, aptOption{"Acquire::http::Proxy::y", "http://localhost:1/"}))
	want = []aptOption{want[0], want[1], want[4], want[5]}
	if diff := cmp.Diff(want, guest); diff != "" {
		t.Errorf("a guest must get neither secrets nor what only the host has (-want +got):\n%s", diff)
	}
}

// TestMirrorCredentialsStayOnTheHost: the build logs in to a mirror, guests and the
// manifest, which everybody can read, do not get to know how.
func TestMirrorCredentialsStayOnTheHost(t *testing.T) {
	own := parseOneLine("deb https://me:s%40cret@mirror.example:8443/debian bookworm main\n" +
		"deb http://token@mirror.example/debian-security bookworm-security main\n" +
		"deb http://open.example/debian bookworm-updates main\n")
	if len(own) != 3 || own[0].URI != "https://me:s%40cret@mirror.example:8443/debian" {
		t.Fatalf("sources %+v", own)
	}
	want := "deb [signed-by=" + debianKeyring + "] https://mirror.example:8443/debian bookworm main\n" +
		"deb [signed-by=" + debianKeyring + "] http://mirror.example/debian-security bookworm-security main\n" +
		"deb [signed-by=" + debianKeyring + "] http://open.example/debian bookworm-updates main\n"
	b := rootBuild{sources: own, root: t.TempDir()}
	if err := b.writeConfig(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(b.root, "etc/apt/sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the guest's sources (-want +got):\n%s", diff)
	}

	bench := newBench(t)
	list := filepath.Join(bench.cfg.etcApt, "sources.list")
	if err := os.MkdirAll(bench.cfg.etcApt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, []byte("deb https://me:s%40cret@mirror.example/debian bookworm main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := bench.mustBuild()
	manifest, err := os.ReadFile(filepath.Join(a.Dir, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(manifest); !strings.Contains(text, "mirror.example") || strings.Contains(text, "cret") {
		t.Errorf("manifest:\n%s", text)
	}
}

func TestParseCA(t *testing.T) {
	one, two := testCertificate(t, "one"), testCertificate(t, "two")
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	bad := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, []byte("a comment\n")) }
	got, err := ParseCA(join(nil, one, two, one))
	if err != nil || !bytes.Equal(got, append(slices.Clone(one), two...)) {
		t.Errorf("two certificates: %v\n%s", err, got)
	}
	for name, text := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "a key": join(one, key), "not a certificate": join(one, bad),
		"binary": {0x30, 0x82}, "cut off": one[:len(one)-30], "too large": make([]byte, maxCAFile+1),
	} {
		if got, err := ParseCA(text); err == nil {
			t.Errorf("%s: accepted as %q", name, got)
		}
	}
}

func testCertificate(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
