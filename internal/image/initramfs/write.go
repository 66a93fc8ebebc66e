package initramfs

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// ListFile is the path of the list of modules in the archive.
const ListFile = "/modules.list"

// WriteModules writes an archive with the wanted modules of the kernel whose
// modules are in dir (…/lib/modules/<release>), everything they depend on, and ListFile.
// It returns the paths in the archive, in load order.
func WriteModules(w io.Writer, dir string, wanted []string) ([]string, error) {
	files, err := loadOrder(dir, wanted)
	if err != nil {
		return nil, err
	}
	a := newArchive(w)
	for _, d := range []string{"dev", "proc", "sys", "run", "newroot", "modules"} {
		a.add(cpio.Directory(d, 0o755))
	}
	// The kernel opens /dev/console for init before anything can mount devtmpfs.
	a.add(cpio.CharDev("dev/console", 0o600, 5, 1))
	a.add(cpio.CharDev("dev/null", 0o666, 1, 3))
	var paths []string
	for _, f := range files {
		if !strings.HasSuffix(f, ".ko") {
			return nil, fmt.Errorf("kernel module %s is compressed; only plain modules can be loaded without modprobe", f)
		}
		content, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			return nil, err
		}
		name := path.Join("modules", path.Base(f))
		a.add(cpio.StaticFile(name, string(content), 0o644))
		paths = append(paths, "/"+name)
	}
	a.add(cpio.StaticFile(strings.TrimPrefix(ListFile, "/"), strings.Join(paths, "\n")+"\n", 0o644))
	return paths, a.close()
}

// WriteAgent writes an archive that has the program at agentPath as /init.
func WriteAgent(w io.Writer, agentPath string) error {
	content, err := os.ReadFile(agentPath)
	if err != nil {
		return err
	}
	a := newArchive(w)
	a.add(cpio.StaticFile("init", string(content), 0o755))
	return a.close()
}

// archive writes newc records that are the same for the same content: inode
// numbers count up, times are zero, everything belongs to root.
type archive struct {
	w   cpio.RecordWriter
	ino uint64
	err error
}

func newArchive(w io.Writer) *archive { return &archive{w: cpio.Newc.Writer(w)} }

func (a *archive) add(r cpio.Record) {
	if a.err != nil {
		return
	}
	a.ino++
	r.Info.Ino, r.Info.NLink, r.Info.MTime, r.Info.UID, r.Info.GID = a.ino, 1, 0, 0, 0
	if err := a.w.WriteRecord(r); err != nil {
		a.err = fmt.Errorf("initramfs %s: %w", r.Name, err)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return cpio.WriteTrailer(a.w)
}
