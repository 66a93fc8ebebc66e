package image

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// hostCADir is where a Debian host's administrator adds certificates.
const hostCADir = "/usr/local/share/ca-certificates"

// maxCAFile bounds one certificate file, in bytes.
const maxCAFile = 1 << 20

// HostCA returns the certificates that were added to those of the distribution
// on this host, as PEM, each once and in the order of their file names. It is
// nil when there are none. Files that hold no certificate are logged and skipped.
func HostCA(log *slog.Logger) ([]byte, error) { return readCADir(hostCADir, log) }

func readCADir(dir string, log *slog.Logger) ([]byte, error) {
	var out bytes.Buffer
	seen := map[string]bool{}
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// Links are common here; directories are followed by WalkDir only when real.
		if e.IsDir() || !strings.HasSuffix(file, ".crt") {
			return nil
		}
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxCAFile {
			log.Warn("skipped a CA file of the host", "file", file, "error", err)
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if n := appendCertificates(&out, text, seen); n == 0 {
			log.Warn("skipped a CA file of the host: it holds no certificate", "file", file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// appendCertificates writes the certificates in text to out and returns how many it found.
func appendCertificates(out *bytes.Buffer, text []byte, seen map[string]bool) int {
	found := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return found
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue
		}
		found++
		if !seen[string(block.Bytes)] {
			seen[string(block.Bytes)] = true
			_ = pem.Encode(out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a Buffer does not fail
		}
	}
}

// ParseCA returns the certificates of a PEM file, each once. A file without one, or
// with one that cannot be parsed, is refused.
func ParseCA(text []byte) ([]byte, error) {
	if len(text) > maxCAFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxCAFile)
	}
	blocks := 0
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a %q; only certificates may be in it", block.Type)
		}
		blocks++
	}
	if blocks == 0 {
		return nil, errors.New("it holds no certificate in PEM format")
	}
	var out bytes.Buffer
	if n := appendCertificates(&out, text, map[string]bool{}); n != blocks {
		return nil, fmt.Errorf("%d of its %d certificates cannot be parsed", blocks-n, blocks)
	}
	return out.Bytes(), nil
}

// splitPEM returns the PEM blocks of a bundle one by one.
func splitPEM(bundle []byte) [][]byte {
	var out [][]byte
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			return out
		}
		out = append(out, pem.EncodeToMemory(block))
		bundle = rest
	}
}
