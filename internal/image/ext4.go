package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/sandbox"
)

// writeImages writes the root filesystem in its two forms, side by side.
func (b *rootBuild) writeImages(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return writeTar(ctx, b.root, filepath.Join(b.out, tarFile)) })
	g.Go(func() error { return writeExt4(ctx, b.root, filepath.Join(b.out, ext4File), b.def.DiskMB) })
	return g.Wait()
}

// writeExt4 makes a sparse ext4 image of sizeMB MB with the content of root.
func writeExt4(ctx context.Context, root, file string, sizeMB int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(sizeMB) << 20)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return program{Name: "mkfs.ext4", Args: ext4Args(root, file)}.run(ctx)
}

// ext4Args is the command line of mkfs.ext4. All features are spelled out,
// because a host's mke2fs.conf may ask for ones that the guest's kernel lacks.
//
// Inode tables and journal are initialised here (the file is sparse, so it
// costs nothing): else a kernel thread of every guest would do it and dirty
// its pages and disk. resize= reserves descriptors to grow online to the
// largest disk that a sandbox can have. No blocks are reserved for root,
// who is the user of a sandbox.
func ext4Args(root, file string) []string {
	return []string{
		"-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-L", "root",
		"-O", "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,64bit,metadata_csum",
		"-E", fmt.Sprintf("resize=%dM,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", sandbox.MaxDiskMB),
		"-d", root, file,
	}
}
