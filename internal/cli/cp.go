package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// copyEnd is one side of a copy.
type copyEnd struct {
	sandbox string // "" is this machine
	path    string // "-" on this machine is standard input or output
}

func (e copyEnd) remote() bool { return e.sandbox != "" }
func (e copyEnd) stream() bool { return !e.remote() && e.path == "-" }

// parseEnd reads ID:PATH or a local path. A local path with a colon in its
// first part is written ./a:b, as with scp.
func parseEnd(arg string) (copyEnd, error) {
	if arg == "" {
		return copyEnd{}, errors.New("an empty path")
	}
	before, after, found := strings.Cut(arg, ":")
	if !found || before == "" || strings.ContainsAny(before, "/.") {
		return copyEnd{path: arg}, nil
	}
	if after == "" {
		after = "." // the home directory
	}
	return copyEnd{sandbox: before, path: after}, nil
}

func (p *program) cpCommand() *cobra.Command {
	var noWake bool
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files into or out of a sandbox",
		Long: `Copy a file or a directory into or out of a sandbox. One of SRC and DST is
ID:PATH, the other a path on this machine. A relative PATH starts at root's home
directory, /root.

A file is copied to DST, or into DST if that is a directory. A directory is
copied as DST if that does not exist, and into it under its own name if it does;
with /. at its end only what it holds is copied. Permissions and times are kept;
owners are not: what comes in belongs to root, what comes out to you.

"-" as SRC reads standard input into a file, and as DST writes a file to
standard output (a directory as a tar). A file is replaced as a whole at the end,
or not at all.`,
		Example: `  ramet cp data.csv 3f2a:/root/data.csv
  ramet cp src 3f2a:                     # makes /root/src
  ramet cp 3f2a:/root/out/. results      # what is in out, into results
  curl -s https://example.com/x.json | ramet cp - 3f2a:x.json
  ramet cp 3f2a:/var/log - | tar t`,
		Args: exactly(2, "SRC and DST"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.cp(awake(ctx, noWake), args[0], args[1])
		}),
		ValidArgsFunction: p.completeCopy,
	}
	addNoWake(cmd, &noWake)
	return cmd
}

func (p *program) cp(ctx context.Context, src, dst string) error {
	from, err := parseEnd(src)
	if err != nil {
		return usageErrorf("SRC is %w", err)
	}
	to, err := parseEnd(dst)
	if err != nil {
		return usageErrorf("DST is %w", err)
	}
	switch {
	case from.remote() && to.remote():
		return usageErrorf("both paths are in sandboxes: copy to this machine first")
	case !from.remote() && !to.remote():
		return usageErrorf("one of the paths must be in a sandbox: ID:PATH")
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	cp := &copier{p: p, c: c}
	if from.remote() {
		if cp.id, err = resolveID(ctx, c, from.sandbox); err == nil {
			err = cp.download(ctx, from, to)
		}
	} else {
		if cp.id, err = resolveID(ctx, c, to.sandbox); err == nil {
			err = cp.upload(ctx, from, to)
		}
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", src, dst, err)
	}
	return nil
}

// copier copies to or from one sandbox.
type copier struct {
	p  *program
	c  *client.Client
	id string
}

// stat returns nil when there is nothing at the path.
func (cp *copier) stat(ctx context.Context, path string) (*v1.FileInfo, error) {
	info, err := cp.c.Stat(ctx, cp.id, path)
	var api *client.Error
	if errors.As(err, &api) && api.Code == "file_not_found" {
		return nil, nil
	}
	return info, err
}

const typeDirectory = "directory"

func (cp *copier) upload(ctx context.Context, from, to copyEnd) error {
	var local os.FileInfo
	if !from.stream() {
		var err error
		if local, err = os.Stat(from.path); err != nil {
			return err
		}
	}
	there, err := cp.stat(ctx, to.path)
	if err != nil {
		return err
	}
	intoDir := there != nil && there.Type == typeDirectory
	switch {
	case from.stream() && intoDir:
		return fmt.Errorf("%s is a directory: name the file to write", to.path)
	case from.stream():
		return cp.uploadFile(ctx, cp.p.In, 0o644, -1, to.path)
	case local.IsDir():
		if there != nil && !intoDir {
			return fmt.Errorf("%s is a file: a directory cannot be copied onto it", to.path)
		}
		target := to.path
		if intoDir && !contentsOnly(from.path) {
			name, err := baseName(from.path)
			if err != nil {
				return err
			}
			target = path.Join(to.path, name)
			if there, err = cp.stat(ctx, target); err != nil {
				return err
			}
		}
		return cp.uploadDir(ctx, from.path, target, there == nil)
	}
	target := to.path
	if intoDir {
		target = path.Join(to.path, filepath.Base(from.path))
	} else if strings.HasSuffix(to.path, "/") {
		return fmt.Errorf("there is no directory %s", to.path)
	}
	f, err := os.Open(from.path)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(-1)
	if local.Mode().IsRegular() {
		size = local.Size()
	}
	return cp.uploadFile(ctx, f, uint32(local.Mode().Perm()), size, target)
}

// contentsOnly reports whether a directory's path asks for what it holds
// instead of the directory itself.
func contentsOnly(p string) bool { return p == "." || strings.HasSuffix(p, "/.") }

// baseName returns the name of a local directory, also of one called "..".
func baseName(p string) (string, error) {
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", err
	}
	return filepath.Base(abs), nil
}

func (cp *copier) uploadFile(ctx context.Context, r io.Reader, mode uint32, size int64, target string) error {
	t, done := cp.p.newTransfer("copy to "+target, size)
	defer done()
	_, err := cp.c.WriteFile(ctx, cp.id, target, mode, &countingReader{r, t})
	return err
}

// uploadDir streams a local directory as a tar. A target that is there already
// keeps its own mode and owner: /tmp must stay what it is.
func (cp *copier) uploadDir(ctx context.Context, dir, target string, fresh bool) error {
	t, done := cp.p.newTransfer("copy to "+target, -1)
	defer done()
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packDir(pw, dir, fresh, cp.warn)
		pw.CloseWithError(err) // nil is the end of the tar
		packed <- err
	}()
	_, err := cp.c.WriteArchive(ctx, cp.id, target, &countingReader{pr, t})
	pr.CloseWithError(errors.New("the sandbox takes no more"))
	errPack := <-packed
	if err != nil && errPack != nil {
		// One caused the other: the local mistake breaks the upload off, and a
		// refused upload stops the packing. The server's answer is the reason
		// whenever there is one.
		var api *client.Error
		if errors.As(err, &api) {
			return err
		}
		return errPack
	}
	return errors.Join(err, errPack)
}

func (cp *copier) warn(format string, args ...any) {
	fmt.Fprintf(cp.p.Err, "ramet: %s\n", clean(fmt.Sprintf(format, args...)))
}

func (cp *copier) download(ctx context.Context, from, to copyEnd) error {
	there, err := cp.stat(ctx, from.path)
	if err != nil {
		return err
	}
	switch {
	case there == nil:
		return fmt.Errorf("the sandbox has no %s", from.path)
	case there.Type != "file" && there.Type != typeDirectory:
		return fmt.Errorf("%s is neither a file nor a directory", from.path)
	case to.stream():
		return cp.downloadStream(ctx, from.path, there)
	}
	local, err := os.Stat(to.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	intoDir := local != nil && local.IsDir()
	if there.Type == typeDirectory {
		if local != nil && !intoDir {
			return fmt.Errorf("%s is a file: a directory cannot be copied onto it", to.path)
		}
		target := to.path
		if name := path.Base(there.Path); intoDir && !contentsOnly(from.path) && name != "/" && name != "." {
			target = filepath.Join(to.path, name)
		}
		return cp.downloadDir(ctx, from.path, target)
	}
	target := to.path
	if intoDir {
		target = filepath.Join(to.path, path.Base(there.Path))
	} else if strings.HasSuffix(to.path, "/") {
		return fmt.Errorf("there is no directory %s", to.path)
	}
	return cp.downloadFile(ctx, from.path, there, target)
}

func (cp *copier) downloadStream(ctx context.Context, src string, there *v1.FileInfo) error {
	var body io.ReadCloser
	size := int64(-1)
	var err error
	if there.Type == typeDirectory {
		if isTerminal(cp.p.Out) {
			return errors.New("a directory goes to standard output as a tar: send it to a file or a program")
		}
		body, err = cp.c.ReadArchive(ctx, cp.id, src)
	} else {
		body, size, err = cp.c.ReadFile(ctx, cp.id, src)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	t, done := cp.p.newTransfer("copy "+src, size)
	defer done()
	_, err = io.Copy(cp.p.Out, &countingReader{body, t})
	return err
}

// downloadFile writes a file beside its final name and renames it, so that a
// copy that breaks off leaves what was there.
func (cp *copier) downloadFile(ctx context.Context, src string, there *v1.FileInfo, target string) error {
	body, size, err := cp.c.ReadFile(ctx, cp.id, src)
	if err != nil {
		return err
	}
	defer body.Close()
	t, done := cp.p.newTransfer("copy to "+target, size)
	defer done()

	if st, err := os.Stat(target); err == nil && !st.Mode().IsRegular() {
		// A device or a pipe, such as /dev/null: there is nothing to replace.
		return writeThrough(target, &countingReader{body, t})
	}
	dir, name := filepath.Split(target)
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return replaceFile(root, name, fileMode(there.Mode), there.ModifiedAt, &countingReader{body, t})
}

func writeThrough(target string, r io.Reader) error {
	f, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func (cp *copier) downloadDir(ctx context.Context, src, target string) error {
	body, err := cp.c.ReadArchive(ctx, cp.id, src)
	if err != nil {
		return err
	}
	defer body.Close()
	t, done := cp.p.newTransfer("copy to "+target, -1)
	defer done()
	return unpackDir(&countingReader{body, t}, target, cp.warn)
}

// countingReader tells a transfer what was read.
type countingReader struct {
	r io.Reader
	t *transfer
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.t.add(n)
	return n, err
}
