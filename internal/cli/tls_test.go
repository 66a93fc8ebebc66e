package cli

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/tlscert"
	"ramet.dev/ramet/internal/tlscert/certtest"
)

// authorities has one authority for each directory of certificates.
var authorities sync.Map

// scriptCertificate writes cert.pem, key.pem and ca.pem into a directory:
// certificate DIR NAME... Later ones in it come from the same authority.
func scriptCertificate(ts *testscript.TestScript, dir string, names []string) {
	ts.Check(os.MkdirAll(dir, 0o755))
	made, err := certtest.New()
	ts.Check(err)
	ca, _ := authorities.LoadOrStore(dir, made)
	ts.Check(ca.(*certtest.CA).Write(dir, names...))
}

// scriptSwapCertificate puts the local certificate of another server into a
// server.json, or the first one back: swapcert FILE.
func scriptSwapCertificate(ts *testscript.TestScript, path string) {
	if _, err := os.Stat(path + ".first"); err == nil {
		ts.Check(os.Rename(path+".first", path))
		return
	}
	b, err := os.ReadFile(path)
	ts.Check(err)
	var info config.ServerInfo
	ts.Check(json.Unmarshal(b, &info))
	dir := ts.MkAbs("stranger")
	scriptCertificate(ts, dir, []string{"127.0.0.1"})
	other, err := tlscert.Open(config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")},
		&net.TCPAddr{}, "", slog.New(slog.DiscardHandler))
	ts.Check(err)
	info.LocalCert = other.LocalCert()
	ts.Check(errors.Join(os.WriteFile(path+".first", b, 0o644), info.Write(config.Home(filepath.Dir(path)))))
}
