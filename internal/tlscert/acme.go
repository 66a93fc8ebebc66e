package tlscert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

// authority gets certificates by ACME and renews them.
type authority struct {
	domains []string
	log     *slog.Logger
	cache   *certmagic.Cache
	magic   *certmagic.Config

	web   *http.Server // answers the HTTP challenge; nil without one
	webLn net.Listener

	ctx    context.Context // ends the work
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func openACME(cfg config.TLS, addr net.Addr, dir string, log *slog.Logger) (*authority, error) {
	roots, err := rootsOf(cfg)
	if err != nil {
		return nil, err
	}
	host, port, err := splitAddr(addr.String())
	if err != nil {
		return nil, err
	}
	logger := zap.New(zapCore{log: log})
	a := &authority{domains: cfg.ACMEDomains, log: log}
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.magic, nil },
		Logger:           logger,
	})
	a.magic = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: dir}, Logger: logger,
		// Who calls by address says no name.
		DefaultServerName: cfg.ACMEDomains[0],
	})
	template := certmagic.ACMEIssuer{
		CA: cfg.ACMECA, Email: cfg.ACMEEmail, Agreed: true, TrustedRoots: roots, Logger: logger,
		// certmagic finds that the address is taken, by us, and leaves the answer to our handshakes.
		ListenHost: host, AltTLSALPNPort: port,
		DisableHTTPChallenge: cfg.ACMEHTTP == "",
	}
	if cfg.ACMEHTTP != "" {
		if a.webLn, err = net.Listen("tcp", cfg.ACMEHTTP); err != nil {
			a.cache.Stop()
			return nil, sandbox.Errorf(sandbox.Unavailable, "cannot_listen", "cannot listen on %s for ACME's HTTP challenge: %w", cfg.ACMEHTTP, err)
		}
		if template.ListenHost, template.AltHTTPPort, err = splitAddr(a.webLn.Addr().String()); err != nil {
			a.cache.Stop()
			return nil, errors.Join(err, a.webLn.Close())
		}
		// The authority may try either; one that reaches the port for HTTP need not reach the other.
		template.DisableTLSALPNChallenge = true
	}
	issuer := certmagic.NewACMEIssuer(a.magic, template)
	a.magic.Issuers = []certmagic.Issuer{issuer}
	if a.webLn != nil {
		a.web = &http.Server{
			Handler:           issuer.HTTPChallengeHandler(http.HandlerFunc(onlyChallenges)),
			ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
			IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		}
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("read the address %s: %w", addr, err)
	}
	return host, port, nil
}

// rootsOf reads who may have signed the authority's own certificate; nil leaves
// that to the host.
func rootsOf(cfg config.TLS) (*x509.CertPool, error) {
	if cfg.ACMECARoot == "" {
		return nil, nil
	}
	b, err := readPEM(cfg.ACMECARoot)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(b) {
		err = fmt.Errorf("%s holds no certificate", cfg.ACMECARoot)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "bad_acme_ca_root", "the certificates of the ACME authority cannot be used: %w", err)
	}
	return pool, nil
}

// onlyChallenges answers what is no challenge. It does not redirect: a client
// that sent its key in the clear must hear of it.
func onlyChallenges(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this port answers ACME challenges only; the API speaks https", http.StatusNotFound)
}

// start begins to answer challenges, and gets the certificates that are missing
// or due. A failure is tried again, later and later, for as long as the server runs.
func (a *authority) start() {
	if a.web != nil {
		a.work.Go(func() {
			if err := a.web.Serve(a.webLn); !errors.Is(err, http.ErrServerClosed) {
				a.log.Error("answer ACME's HTTP challenge", "err", err)
			}
		})
	}
	for _, name := range a.domains {
		a.work.Go(func() { a.manage(name) })
	}
}

func (a *authority) manage(name string) {
	// It returns at once when there is a certificate, and tries for 30 days when
	// there is none. Only this form of the call never asks a terminal.
	if err := a.magic.ObtainCertAsync(a.ctx, name); err != nil {
		if a.ctx.Err() == nil {
			a.log.Error("get a certificate by ACME", "name", name, "err", err)
		}
		return
	}
	if err := a.magic.ManageAsync(a.ctx, []string{name}); err != nil {
		a.log.Error("keep the certificate that came by ACME", "name", name, "err", err)
		return
	}
	a.log.Info("certificate for HTTPS by ACME", "name", name)
}

func (a *authority) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.magic.GetCertificate(hello)
}

// close ends the work and waits for it.
func (a *authority) close() error {
	a.cancel()
	var err error
	if a.web != nil {
		err = a.web.Close()
		if cerr := a.webLn.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr) // it never served
		}
	}
	a.work.Wait()
	a.cache.Stop()
	return err
}
