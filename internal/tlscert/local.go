package tlscert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"time"
)

// local is a certificate that only this process has the key of, and that it
// signed itself. Whoever holds its text, which server.json gives to the programs
// of this host, knows that it talks to this very process.
type local struct {
	cert tls.Certificate
	pem  string
}

// localLife is longer than a server runs.
const localLife = 20 * 365 * 24 * time.Hour

func newLocal(name string) (*local, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		DNSNames: []string{name},
		// A clock that is set back must not lock out the command line.
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(localLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// No authority: it vouches for nothing but itself.
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &local{
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		pem:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}, nil
}
