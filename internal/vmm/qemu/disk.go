package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
)

// imageNode is the node of the image's root filesystem, the lowest of the chain.
const imageNode = "image"

// layerName is the file of a layer, layerNode its node in QEMU, by its number.
func layerName(n int) string { return layerPrefix + strconv.Itoa(n) + layerSuffix }

func layerNode(n int) string { return "layer" + strconv.Itoa(n) }

// linkLayers gives the instance its own names of a snapshot's layers, so that
// it does not depend on the snapshot's directory, and checks those that have a checksum.
func (d *Driver) linkLayers(snapDir, dir string, layers []snapshot.File) error {
	for i, l := range layers {
		src, path := filepath.Join(snapDir, l.Name), filepath.Join(dir, layerName(i))
		if err := snapshot.LinkOrCopy(nil, src, path); err != nil {
			if _, serr := os.Lstat(src); errors.Is(serr, os.ErrNotExist) {
				return &snapshot.CorruptError{Path: src, Reason: "it is missing"}
			}
			return fmt.Errorf("link disk layer: %w", err)
		}
		if l.SHA256 == "" {
			continue // of an ephemeral snapshot
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open disk layer: %w", err)
		}
		err = d.verified.Check(f, l)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// openChain opens the image and the layers in dir for QEMU, lowest first: all
// of them read-only, and the top read-write as well.
func openChain(image, dir string, layers int) (args []diskArg, files []*os.File, err error) {
	fail := func(err error) ([]diskArg, []*os.File, error) {
		return nil, nil, errors.Join(fmt.Errorf("open disk: %w", err), closeAll(files))
	}
	f, err := os.Open(image)
	if err != nil {
		return fail(err)
	}
	files = append(files, f)
	args = append(args, diskArg{Node: imageNode, Format: "raw", FDs: []int{0}})
	for i := range layers {
		a := diskArg{Node: layerNode(i), Format: "qcow2"}
		modes := []int{unix.O_RDONLY}
		if i == layers-1 {
			modes = []int{unix.O_RDWR, unix.O_RDONLY}
		}
		for _, mode := range modes {
			f, err := os.OpenFile(filepath.Join(dir, layerName(i)), mode, 0)
			if err != nil {
				return fail(err)
			}
			a.FDs = append(a.FDs, len(files))
			files = append(files, f)
		}
		args = append(args, a)
	}
	return args, files, nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// diskMB is the size that the disk of a cold machine gets: what was asked for, but never
// less than the image.
func diskMB(image string, want int) (int, error) {
	st, err := os.Stat(image)
	if err != nil {
		return 0, fmt.Errorf("look at the image's disk: %w", err)
	}
	if want > sandbox.MaxDiskMB {
		return 0, sandbox.Errorf(sandbox.Invalid, "disk_too_large", "a disk can have at most %d MB", sandbox.MaxDiskMB)
	}
	return max(want, int((st.Size()+1<<20-1)>>20)), nil
}
