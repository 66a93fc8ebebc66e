package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
)

// serves reports whether the server of a data directory runs and listens at a
// URL. On an address that others could have too it must be able to prove it,
// which trustFor makes it do.
func serves(home config.Home, at string) bool {
	info, err := config.ReadServerInfo(home)
	if err != nil || !info.Running() {
		return false
	}
	a, errA := url.Parse(info.URL)
	b, errB := url.Parse(at)
	if errA != nil || errB != nil || a.Scheme != b.Scheme || a.Port() != b.Port() {
		return false
	}
	if localURL(info.URL) && localURL(at) {
		return true
	}
	return info.LocalCert != "" && a.Hostname() == b.Hostname()
}

// trustFor returns how a server proves who it is. That of the data directory
// shows the certificate in its server.json, which only its user can write: no
// name has to fit, and no authority is asked. Others need a certificate for
// their name from an authority that RAMET_CA names, or that the host trusts.
func trustFor(c config.Client) ([]client.Option, error) {
	home := config.Home(c.Home)
	if serves(home, c.URL) {
		info, err := config.ReadServerInfo(home)
		if err != nil {
			return nil, err
		}
		return trustLocal(info)
	}
	if c.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, usageErrorf("the authorities of the setting ca cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usageErrorf("%s, which the setting ca names, holds no certificate", c.CA)
	}
	return []client.Option{client.WithTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})}, nil
}

// trustLocal returns how the server that info describes proves who it is.
func trustLocal(info config.ServerInfo) ([]client.Option, error) {
	cfg, err := info.TLSClient()
	if err != nil || cfg == nil {
		return nil, err
	}
	return []client.Option{client.WithTLS(cfg), client.WithoutProxy()}, nil
}

// clientOf returns a client without a key of the server that info describes.
func (p *program) clientOf(info config.ServerInfo) (*client.Client, error) {
	trust, err := trustLocal(info)
	if err != nil {
		return nil, err
	}
	return client.New(info.URL, "", "ramet/"+p.Version, trust...)
}
