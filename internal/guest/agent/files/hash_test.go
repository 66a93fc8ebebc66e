package files

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func hashes(t *testing.T, c client, r *agentv1.HashRequest) ([][]byte, error) {
	t.Helper()
	stream, err := c.Hash(t.Context(), r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var sums [][]byte
	for stream.Receive() {
		if int(stream.Msg().Index) != len(sums) {
			t.Errorf("index %d of answer %d", stream.Msg().Index, len(sums))
		}
		sums = append(sums, stream.Msg().Sha256)
	}
	return sums, stream.Err()
}

func TestHashReadsOnlyRegularFiles(t *testing.T) {
	c, dir := start(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	for name, b := range map[string][]byte{"large": large, "empty": nil, "secret": []byte("s")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "secret"), 0o600), os.Symlink("large", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &agentv1.HashRequest{}
	for _, name := range []string{"large", "empty", "link", "pipe", ".", "gone", "secret"} {
		r.Paths = append(r.Paths, filepath.Join(dir, name))
	}
	sums, err := hashes(t, c, r)
	if err != nil || len(sums) != 7 {
		t.Fatalf("%d sums, %v", len(sums), err)
	}
	for i, want := range []([]byte){large, {}, nil, nil, nil, nil, []byte("s")} {
		sum := sha256.Sum256(want)
		if want == nil && len(sums[i]) != 0 || want != nil && !bytes.Equal(sums[i], sum[:]) {
			t.Errorf("%s: %x", r.Paths[i], sums[i])
		}
	}
	r.User = nobody
	if sums, err = hashes(t, c, r); err != nil || len(sums[0]) != 32 || len(sums[6]) != 0 {
		t.Errorf("as nobody: %x %v", sums, err)
	}
	if _, err := hashes(t, c, &agentv1.HashRequest{Paths: make([]string, maxHashed+1)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("too many: %v", err)
	}
}

func TestInfoTellsWhetherAFileIsUntouched(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := c.Stat(t.Context(), &agentv1.StatRequest{Path: path})
	if err != nil || before.Inode == 0 || before.ChangedUnixNanos == 0 {
		t.Fatalf("%v %v", before, err)
	}
	// The content may be what it was, and so may the time of its last write.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	after, err := c.Stat(t.Context(), &agentv1.StatRequest{Path: path})
	if err != nil || after.ChangedUnixNanos == before.ChangedUnixNanos {
		t.Errorf("%v and %v, %v", before, after, err)
	}
}
