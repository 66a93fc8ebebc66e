package agent

import (
	"bytes"
	"crypto/sha1" // OpenSSL names links by it; nothing here relies on its strength
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxCertificates bounds what one bundle may add.
const maxCertificates = 1000

// trustCertificates adds the certificates of a PEM bundle to those that the
// system under root trusts. It does what update-ca-certificates does for them,
// in milliseconds, and leaves the files where that program will find them:
// the certificate in /usr/local/share/ca-certificates, in the one bundle that
// most libraries read, and under its hashed name for OpenSSL's directory. It
// changes nothing that is right already.
func trustCertificates(root string, bundle []byte) error {
	certs, err := parseBundle(bundle)
	if err != nil {
		return err
	}
	local := filepath.Join(root, "usr/local/share/ca-certificates")
	store := filepath.Join(root, "etc/ssl/certs")
	for _, dir := range []string{local, store} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	file := filepath.Join(store, "ca-certificates.crt")
	trusted, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := trusted
	for _, cert := range certs {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
		sum := sha256.Sum256(cert.Raw)
		name := "ramet-" + hex.EncodeToString(sum[:8])
		if err := replaceFile(filepath.Join(local, name+".crt"), text, 0o644); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(store, name+".pem"), text, 0o644); err != nil {
			return err
		}
		if err := linkByHash(store, name+".pem", cert); err != nil {
			return err
		}
		if !bytes.Contains(all, text) {
			if len(all) > 0 && all[len(all)-1] != '\n' {
				all = append(all, '\n')
			}
			all = append(all, text...)
		}
	}
	return replaceFile(file, all, 0o644)
}

func parseBundle(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		if certs = append(certs, cert); len(certs) > maxCertificates {
			return nil, fmt.Errorf("more than %d certificates", maxCertificates)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate in the bundle")
	}
	return certs, nil
}

// linkByHash makes the link under which OpenSSL looks for an issuer: the hash of
// its subject, and a number when several have the same.
func linkByHash(store, target string, cert *x509.Certificate) error {
	hash, err := subjectHash(cert.RawSubject)
	if err != nil {
		return fmt.Errorf("subject of %s: %w", target, err)
	}
	for i := range maxCertificates {
		link := filepath.Join(store, fmt.Sprintf("%08x.%d", hash, i))
		err := os.Symlink(target, link)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if old, err := os.Readlink(link); err == nil && old == target {
			return nil
		}
	}
	return fmt.Errorf("no free name for %08x", hash)
}

// subjectHash is OpenSSL's X509_NAME_hash: the first four bytes, little-endian,
// of the SHA-1 of the name in its canonical form. There each string is UTF-8
// in lower case with single spaces, and the outer sequence has no header.
func subjectHash(subject []byte) (uint32, error) {
	var sequence asn1.RawValue
	if _, err := asn1.Unmarshal(subject, &sequence); err != nil {
		return 0, err
	}
	var canonical []byte
	for rest := sequence.Bytes; len(rest) > 0; {
		var set []attribute
		var err error
		if rest, err = asn1.UnmarshalWithParams(rest, &set, "set"); err != nil {
			return 0, err
		}
		for i := range set {
			set[i].Value = canonicalValue(set[i].Value)
		}
		encoded, err := asn1.MarshalWithParams(set, "set")
		if err != nil {
			return 0, err
		}
		canonical = append(canonical, encoded...)
	}
	sum := sha1.Sum(canonical)
	return binary.LittleEndian.Uint32(sum[:]), nil
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

func canonicalValue(v asn1.RawValue) asn1.RawValue {
	var text string
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String:
		text = string(v.Bytes)
	case asn1.TagT61String: // Latin-1, as OpenSSL takes it
		for _, c := range v.Bytes {
			text += string(rune(c))
		}
	case asn1.TagBMPString:
		for i := 0; i+1 < len(v.Bytes); i += 2 {
			text += string(rune(binary.BigEndian.Uint16(v.Bytes[i:])))
		}
	default:
		return v
	}
	// ASCII only, as OpenSSL does it.
	lower := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
	space := func(r rune) bool { return r < 128 && strings.ContainsRune(" \t\n\v\f\r", r) }
	lower = strings.Join(strings.FieldsFunc(lower, space), " ")
	return asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(lower)}
}
