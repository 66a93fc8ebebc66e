package image

import (
	"os"
	"path/filepath"
	"testing"

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
