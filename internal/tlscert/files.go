package tlscert

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// maxPEM bounds a certificate file with its chain, and a key file, in bytes.
const maxPEM = 1 << 20

// settleTime is how old a change must be before the stamps of a file tell it
// from the next one: clocks of filesystems tick slowly.
const settleTime = 2 * time.Second

// files is a certificate and its key, in two files. Each handshake looks whether
// they have changed. While what is there does not fit together, as in the
// middle of a renewal, the pair before is served on.
type files struct {
	certPath, keyPath string
	log               *slog.Logger

	current atomic.Pointer[tls.Certificate]
	seen    atomic.Pointer[stamps]

	reading sync.Mutex // held by the one handshake that reads the files
	cert    []byte     // guarded by reading; what was read last, fit or not
	key     []byte     // guarded by reading
	trouble string     // guarded by reading; why nothing could be read
}

// stamp tells a version of a file from another without reading it.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

type stamps struct{ cert, key stamp }

// settled reports whether a later change must show in the stamps.
func (s stamps) settled(now time.Time) bool {
	return now.Sub(s.cert.changed) > settleTime && now.Sub(s.key.changed) > settleTime
}

// openFiles reads the pair for the first time, and refuses one that is of no use.
func openFiles(certPath, keyPath string, log *slog.Logger) (*files, error) {
	f := &files{certPath: certPath, keyPath: keyPath, log: log}
	f.reading.Lock()
	defer f.reading.Unlock()
	if err := f.read(); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "bad_certificate", "the certificate for HTTPS cannot be used: %w", err)
	}
	return f, nil
}

// get returns the certificate that is there now.
func (f *files) get() *tls.Certificate {
	now, err := f.stat()
	if seen := f.seen.Load(); err == nil && seen != nil && now == *seen {
		return f.current.Load()
	}
	// One handshake reads; the others need not wait for it.
	if f.reading.TryLock() {
		defer f.reading.Unlock()
		if err := f.read(); err != nil {
			f.log.Error("the changed certificate cannot be used, the one before is served on", "err", err)
		}
	}
	return f.current.Load()
}

func (f *files) stat() (stamps, error) {
	cert, errCert := stampOf(f.certPath)
	key, errKey := stampOf(f.keyPath)
	return stamps{cert, key}, errors.Join(errCert, errKey)
}

func stampOf(path string) (stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	s := stamp{size: st.Size(), changed: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = sys.Dev, sys.Ino
		// The time of the last change of any kind cannot be set by hand.
		if c := time.Unix(sys.Ctim.Unix()); c.After(s.changed) {
			s.changed = c
		}
	}
	return s, nil
}

// read takes over what is in the files, if it is another pair than before. It
// returns an error once for each content that is of no use. Its caller holds f.reading.
func (f *files) read() error {
	// The stamps first: a change during the reading then shows at the next look.
	now, err := f.stat()
	var cert, key []byte
	if err == nil {
		cert, err = readPEM(f.certPath)
	}
	if err == nil {
		key, err = readPEM(f.keyPath)
	}
	if err == nil && now.settled(time.Now()) {
		f.seen.Store(&now)
	}
	trouble := ""
	if err != nil {
		cert, key, trouble = nil, nil, err.Error()
	}
	known := f.trouble == trouble && bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key)
	if known && f.current.Load() != nil {
		return nil
	}
	f.cert, f.key, f.trouble = cert, key, trouble
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", f.certPath, f.keyPath, err)
	}
	f.current.Store(&pair)
	log := f.log.Info
	if time.Until(pair.Leaf.NotAfter) < 0 {
		log = f.log.Warn
	}
	log("certificate for HTTPS", "file", f.certPath, "names", pair.Leaf.DNSNames, "addresses", pair.Leaf.IPAddresses,
		"issuer", pair.Leaf.Issuer.String(), "not_after", pair.Leaf.NotAfter)
	return nil
}

func readPEM(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxPEM {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return b, nil
}
