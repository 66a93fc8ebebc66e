package clitest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// guestPath makes a path of the guest absolute, as root's shell would.
func guestPath(p string) string {
	if !path.IsAbs(p) {
		p = path.Join("/root", p)
	}
	return path.Clean(p)
}

// host returns where a fake sandbox keeps a path.
func (b *box) host(p string) string { return filepath.Join(b.dir, guestPath(p)) }

func fileError(w http.ResponseWriter, p string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fail(w, 404, "file_not_found", "there is no "+p)
	default:
		fail(w, 400, "file_error", p+": "+err.Error())
	}
}

func (b *box) info(p string) (v1.FileInfo, error) {
	st, err := os.Stat(b.host(p))
	if err != nil {
		return v1.FileInfo{}, err
	}
	kind := "file"
	switch {
	case st.IsDir():
		kind = "directory"
	case !st.Mode().IsRegular():
		kind = "other"
	}
	return v1.FileInfo{
		Path: guestPath(p), Type: kind, Size: st.Size(), Mode: fmt.Sprintf("%04o", st.Mode().Perm()),
		Owner: "root", Group: "root", ModifiedAt: st.ModTime().UTC(),
	}, nil
}

// StatFile implements the API.
func (s *Server) StatFile(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.StatFileParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	info, err := b.info(params.Path)
	if err != nil {
		fileError(w, params.Path, err)
		return
	}
	answer(w, info)
}

// ListFiles implements the API.
func (s *Server) ListFiles(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.ListFilesParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	entries, err := os.ReadDir(b.host(params.Path))
	if err != nil {
		fileError(w, params.Path, err)
		return
	}
	list := v1.FileList{Files: []v1.FileInfo{}}
	for _, e := range entries {
		if info, err := b.info(path.Join(guestPath(params.Path), e.Name())); err == nil {
			list.Files = append(list.Files, info)
		}
	}
	answer(w, list)
}

// ReadFile implements the API.
func (s *Server) ReadFile(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.ReadFileParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	f, err := os.Open(b.host(params.Path))
	if err != nil {
		fileError(w, params.Path, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		fileError(w, params.Path, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(st.Size(), 10))
	if strings.HasSuffix(params.Path, ".cut") {
		io.CopyN(w, f, st.Size()/2)
		panic(http.ErrAbortHandler)
	}
	io.Copy(w, f)
}

// WriteFile implements the API.
func (s *Server) WriteFile(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.WriteFileParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	mode, err := strconv.ParseUint(valueOr(params.Mode, "0644"), 8, 32)
	if err != nil {
		fail(w, 400, "invalid_mode", err.Error())
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left: nothing is written
	}
	if err := os.WriteFile(b.host(params.Path), content, 0o600); err != nil {
		fileError(w, params.Path, err)
		return
	}
	if err := os.Chmod(b.host(params.Path), fs.FileMode(mode)); err != nil {
		fileError(w, params.Path, err)
		return
	}
	info, err := b.info(params.Path)
	if err != nil {
		fileError(w, params.Path, err)
		return
	}
	answer(w, info)
}

// ReadArchive implements the API. A directory called "evil" is sent with a
// name that leads out of it, "evil-link" with a link that does and a file below
// it, and "cut" breaks off.
func (s *Server) ReadArchive(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.ReadArchiveParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	tw := tar.NewWriter(w)
	file := func(name, content string) {
		tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
		io.WriteString(tw, content)
	}
	switch path.Base(guestPath(params.Path)) {
	case "evil":
		file("good.txt", "good")
		file("../evil.txt", "evil")
	case "evil-link":
		tw.WriteHeader(&tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: ".."})
		file("out/evil.txt", "evil")
	case "cut":
		file("whole.txt", "whole")
		tw.WriteHeader(&tar.Header{Name: "half.txt", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1000})
		io.WriteString(tw, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		if err := tw.AddFS(os.DirFS(b.host(params.Path))); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	tw.Close()
}

// WriteArchive implements the API.
func (s *Server) WriteArchive(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.WriteArchiveParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	out := v1.Extracted{}
	tr := tar.NewReader(r.Body)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			answer(w, out)
			return
		}
		if err == nil {
			err = unpack(b.host(path.Join(guestPath(params.Path), h.Name)), h, tr)
		}
		if err != nil {
			fail(w, 400, "invalid_archive", err.Error())
			return
		}
		out.Files++
		out.Bytes += h.Size
	}
}

func unpack(target string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, target)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(target, content, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(target, fs.FileMode(h.Mode).Perm()); err != nil {
		return err
	}
	return os.Chtimes(target, h.ModTime, h.ModTime)
}

// MakeDirectory implements the API.
func (s *Server) MakeDirectory(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	unused(w)
}

// MoveFile implements the API.
func (s *Server) MoveFile(w http.ResponseWriter, r *http.Request, id v1.SandboxID) { unused(w) }

// SetFileAttributes implements the API.
func (s *Server) SetFileAttributes(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	unused(w)
}

// RemoveFile implements the API.
func (s *Server) RemoveFile(w http.ResponseWriter, r *http.Request, id v1.SandboxID, params v1.RemoveFileParams) {
	unused(w)
}

// unused answers calls that no command makes.
func unused(w http.ResponseWriter) {
	fail(w, 501, "unsupported", "no command of the command line makes this call")
}
