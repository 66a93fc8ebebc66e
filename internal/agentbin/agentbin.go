// Package agentbin finds the guest agent that goes with this program. A
// program built by the Makefile carries it inside (build tag embedagent), so
// that one file is all there is to install. One built by a plain `go build`
// takes it from RAMET_AGENT, or from beside itself.
package agentbin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Path returns the path of the agent, writing the embedded one below dir at
// the first use. The name holds the content's hash, so an upgrade never
// changes a file that something uses.
func Path(dir string) (string, error) {
	if len(embedded) == 0 {
		return outside()
	}
	sum := sha256.Sum256(embedded)
	path := filepath.Join(dir, "ramet-agent-"+hex.EncodeToString(sum[:8]))
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(embedded)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a place for the guest agent: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".ramet-agent-*")
	if err != nil {
		return "", fmt.Errorf("write the guest agent: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(embedded)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("write the guest agent: %w", err)
	}
	return path, nil
}

func outside() (string, error) {
	if path := os.Getenv("RAMET_AGENT"); path != "" {
		return path, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the guest agent: %w", err)
	}
	path := filepath.Join(filepath.Dir(exe), "ramet-agent")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("this build does not carry the guest agent and there is none at %s: build with 'make build'", path)
	}
	return path, nil
}
