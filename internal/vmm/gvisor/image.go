package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/gvisor/erofs"
)

const (
	// rootName is the image beside the tar that it is made from. Its number counts what
	// writeImage does: an image of an older server is made again.
	rootName = "rootfs.1.erofs"
	// agentPath is where the agent is in the root filesystem. It is a place of its own:
	// nothing that is installed in a guest replaces it.
	agentPath = "/.ramet/init"
	// maxInitrd bounds the archive that holds the agent, in bytes.
	maxInitrd = 512 << 20
)

// images makes each root image once.
type images struct {
	mu sync.Mutex // held while one is made
}

// root returns the root image of img, and makes it at its first use.
func (d *Driver) root(ctx context.Context, img vmm.Image) (string, error) {
	path := filepath.Join(filepath.Dir(img.RootTar), rootName)
	d.images.mu.Lock()
	defer d.images.mu.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find the root filesystem: %w", err)
	}
	err := d.cfg.Disk.Replace("template.erofs", path, 0o444, func(f *os.File) error { return writeImage(ctx, f, img) })
	if err != nil {
		return "", fmt.Errorf("make the root filesystem: %w", err)
	}
	return path, nil
}

func writeImage(ctx context.Context, f *os.File, img vmm.Image) error {
	agent, err := readAgent(img.Initrd)
	if err != nil {
		return err
	}
	archive, err := os.Open(img.RootTar)
	if err != nil {
		return err
	}
	defer archive.Close()
	z, err := zstd.NewReader(contextReader{ctx, archive})
	if err != nil {
		return err
	}
	defer z.Close()
	return erofs.Write(f, z, erofs.File{Path: agentPath, Mode: 0o555, Data: agent})
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// readAgent returns the agent: /init of the archive from which a virtual machine starts.
func readAgent(initrd string) ([]byte, error) {
	f, err := os.Open(initrd)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInitrd+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxInitrd {
		return nil, fmt.Errorf("%s is too large", initrd)
	}
	agent, err := findInit(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", initrd, err)
	}
	return agent, nil
}

// cpioHeader is the length of a record's header in the form "newc": the magic and 13 numbers of
// eight hexadecimal digits.
const cpioHeader = 110

// findInit returns the last file named "init" of the archives in data. Like the kernel it skips
// the zeros between them.
func findInit(data []byte) (found []byte, err error) {
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; at < len(data); {
		if data[at] == 0 {
			at++
			continue
		}
		if at+cpioHeader > len(data) || !bytes.HasPrefix(data[at:], []byte("070701")) {
			return nil, errors.New("not a cpio archive")
		}
		size, err1 := cpioNumber(data, at, 6)
		nameLen, err2 := cpioNumber(data, at, 11)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		nameAt := at + cpioHeader
		dataAt := align(nameAt + nameLen)
		end := dataAt + size
		if nameLen < 1 || dataAt > len(data) || end > len(data) {
			return nil, errors.New("the archive is cut off")
		}
		if string(data[nameAt:nameAt+nameLen-1]) == "init" {
			found = data[dataAt:end]
		}
		at = align(end)
	}
	if found == nil {
		return nil, errors.New("there is no agent in it")
	}
	return found, nil
}

// cpioNumber is the n-th number of the header at an offset.
func cpioNumber(data []byte, at, n int) (int, error) {
	v, err := strconv.ParseUint(string(data[at+6+8*n:at+14+8*n]), 16, 31)
	if err != nil {
		return 0, errors.New("bad number in a cpio header")
	}
	return int(v), nil
}
