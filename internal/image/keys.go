package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Versions of what this package makes. Raise one when the same inputs must
// give other bytes: the root filesystem takes minutes, the initrd a moment.
const (
	rootFormat   = 1
	initrdFormat = 1
)

// ShapeVersion is the version of the machine shape that images are made for.
// The initrd carries the drivers of exactly that shape.
const ShapeVersion = 1

// keys are the content hashes of a build's parts, 64 hex digits each.
type keys struct {
	Root   string `json:"root"`   // root filesystem and kernel
	Initrd string `json:"initrd"` // kernel modules and agent
	Build  string `json:"build"`  // the whole; names the directory
}

// rootInputs is everything that decides what the root filesystem is, apart
// from what the mirrors hold on the day.
type rootInputs struct {
	Format     int        `json:"format"`
	Arch       string     `json:"arch"`
	Definition Definition `json:"definition"`
	Sources    string     `json:"sources"`
	AptOptions []string   `json:"apt_options"`
	CA         string     `json:"ca"` // hash of the certificates that are added
}

func makeKeys(root rootInputs, agentHash string) (keys, error) {
	var k keys
	var err error
	if k.Root, err = hashOf(root); err != nil {
		return k, err
	}
	if k.Initrd, err = hashOf(map[string]any{"format": initrdFormat, "root": k.Root, "agent": agentHash}); err != nil {
		return k, err
	}
	k.Build, err = hashOf(map[string]any{"root": k.Root, "initrd": k.Initrd, "shape": ShapeVersion})
	return k, err
}

func hashOf(v any) (string, error) {
	b, err := canonicalJSON(v)
	if err != nil {
		return "", err
	}
	return hashBytes(b), nil
}

func hashBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
