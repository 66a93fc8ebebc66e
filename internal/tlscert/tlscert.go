// Package tlscert owns which certificate the API shows: one from a pair of
// files, which is read again when they change, or one that comes by ACME. And
// always one of this process's own, for programs of this host (local.go), so
// that they need not know the names of the others or wait for them.
//
// It listens nowhere but for ACME's HTTP challenge, and knows nothing of what is
// served. Start reading at Open.
package tlscert

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/mholt/acmez/v3"

	"ramet.dev/ramet/internal/config"
)

// Source gives a server its certificates.
type Source struct {
	files *files
	acme  *authority
	local *local
}

// Open reads the certificate that cfg names, or prepares to get one by ACME for
// a server that listens on addr. What is kept of ACME is in the directory dir.
// It needs a Start and a Close.
func Open(cfg config.TLS, addr net.Addr, dir string, log *slog.Logger) (*Source, error) {
	s := &Source{}
	var err error
	if s.local, err = newLocal(config.LocalName); err != nil {
		return nil, fmt.Errorf("make the local certificate: %w", err)
	}
	if cfg.CertFile != "" {
		s.files, err = openFiles(cfg.CertFile, cfg.KeyFile, log)
	} else {
		s.acme, err = openACME(cfg, addr, dir, log)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Check reads the files that cfg names as Open would, and finds what is wrong
// with them.
func Check(cfg config.TLS) error {
	if cfg.CertFile != "" {
		_, err := openFiles(cfg.CertFile, cfg.KeyFile, slog.New(slog.DiscardHandler))
		return err
	}
	_, err := rootsOf(cfg)
	return err
}

// Start begins to get and renew certificates by ACME, in the background. The
// server must be about to accept connections: the authority calls back.
func (s *Source) Start() {
	if s.acme != nil {
		s.acme.start()
	}
}

// Close ends what Start began, and waits for it.
func (s *Source) Close() error {
	if s.acme != nil {
		return s.acme.close()
	}
	return nil
}

// LocalCert returns the certificate, in PEM, that the server shows to those who
// ask for config.LocalName.
func (s *Source) LocalCert() string { return s.local.pem }

// Config returns the TLS settings of the server.
func (s *Source) Config() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}
	if s.acme != nil {
		c.NextProtos = []string{acmez.ACMETLS1Protocol} // http.Server adds its own in front
	}
	return c
}

func (s *Source) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	switch {
	case hello.ServerName == config.LocalName:
		return &s.local.cert, nil
	case s.files != nil:
		return s.files.get(), nil
	}
	return s.acme.get(hello)
}
