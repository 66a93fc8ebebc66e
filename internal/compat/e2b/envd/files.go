package envd

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// nameUser takes the user of a request for files, who is named in its query.
func nameUser(r *http.Request, c *call) {
	if name := r.URL.Query().Get("username"); name != "" {
		c.user, c.named = name, true
	}
}

// readFile sends a file.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	nameUser(r, c)
	if err := maySee(r, c, "read"); err != nil {
		s.fail(w, r, err)
		return
	}
	name, err := s.resolve(r.Context(), c, r.URL.Query().Get("path"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f, err := s.open(r.Context(), c, name)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer f.Close()
	part := r.Header.Get("Range") != "" || r.Header.Get("If-Range") != ""
	identity, zipped := codings(r.Header.Values("Accept-Encoding"))
	if !identity && (part || !zipped) {
		s.fail(w, r, &httpError{http.StatusNotAcceptable, "no acceptable encoding: a file comes as it is or, as a whole, with gzip"})
		return
	}
	h := w.Header()
	h.Set("Content-Disposition", disposition(name))
	h.Set("X-Content-Type-Options", "nosniff") // what is guessed below is said, and the guest wrote it
	h.Set("Vary", "Accept-Encoding")
	switch {
	case zipped && !part && (f.size > 0 || !identity):
		s.sendZipped(w, r, f)
	case f.size == 0:
		s.sendUnknown(w, r, f) // such as a file of /proc, which has no size and is not empty
	default:
		http.ServeContent(w, r, name, f.modified, f)
	}
}

func disposition(name string) string {
	d := mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)})
	if d == "" {
		return "inline"
	}
	return d
}

// codings says whether a client takes content as it is, and whether it asks for gzip. One that
// can also do others is served as it is: all HTTP libraries offer a list, and compressing costs
// more than sending on the way between a sandbox's host and its clients.
func codings(accept []string) (identity, zipped bool) {
	identity = true
	others := false
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		refused := false
		if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
			n, err := strconv.ParseFloat(q, 64)
			refused = err == nil && n == 0
		}
		switch name {
		case "":
		case "gzip", "x-gzip":
			zipped = !refused
		case "identity":
			identity = !refused
		case "*":
			identity = identity && !refused
		default:
			others = others || !refused
		}
	}
	return identity, zipped && (!others || !identity)
}

// sendZipped sends a whole file with gzip.
func (s *Server) sendZipped(w http.ResponseWriter, r *http.Request, f *remoteFile) {
	h := w.Header()
	h.Set("Content-Encoding", "gzip")
	h.Set("Last-Modified", f.modified.UTC().Format(http.TimeFormat))
	head, err := f.head()
	if err != nil {
		h.Del("Content-Encoding")
		s.fail(w, r, err)
		return
	}
	h.Set("Content-Type", contentType(f.name, head))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{z}, f, make([]byte, copyBuffer))
	}
	if err == nil {
		err = z.Close()
	}
	s.broken(r, err)
}

// sendUnknown sends a file whose size does not say how much there is to read.
func (s *Server) sendUnknown(w http.ResponseWriter, r *http.Request, f *remoteFile) {
	head, err := f.head()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Last-Modified", f.modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", contentType(f.name, head))
	if len(head) == 0 {
		h.Set("Content-Length", "0") // clients look for it
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, f, make([]byte, copyBuffer))
	s.broken(r, err)
}

// copyBuffer is how much of a file is sent at once, in bytes.
const copyBuffer = 256 << 10

// broken breaks the connection off when content broke off: a client must never take a part
// for the whole.
func (s *Server) broken(r *http.Request, err error) {
	if err == nil {
		return
	}
	if r.Context().Err() == nil {
		s.log.Warn("envd: a download broke off", "sandbox", callOf(r.Context()).ID, "err", err)
	}
	panic(http.ErrAbortHandler)
}

func contentType(name string, head []byte) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return http.DetectContentType(head)
}

// remoteFile is a file of a guest to read, as http.ServeContent wants it: seeking costs
// nothing until something is read.
type remoteFile struct {
	name     string
	size     int64
	modified time.Time
	// read opens the file at an offset.
	read func(offset int64) (*control.Download, error)

	at     int64
	from   int64 // where rest begins
	stream *control.Download
	rest   []byte
}

// open opens a file to read. What is wrong with it is known at once.
func (s *Server) open(ctx context.Context, c *call, name string) (*remoteFile, error) {
	info, err := s.control.Stat(ctx, c.Project, c.ID, name, "", true)
	if err != nil {
		var e *sandbox.Error
		if errors.As(err, &e) && e.Code == "file_not_found" {
			err = &httpError{http.StatusNotFound, "path '" + shorten(name) + "' does not exist"}
		}
		return nil, err
	}
	switch info.Type {
	case "file":
	case "directory":
		return nil, badRequest("path '%s' is a directory", shorten(name))
	default:
		return nil, badRequest("path '%s' is not a regular file", shorten(name))
	}
	return &remoteFile{
		name: name, size: int64(info.Size), modified: time.Unix(0, info.ModifiedUnixNanos),
		read: func(offset int64) (*control.Download, error) {
			return s.control.ReadFile(ctx, c.Project, c.ID, name, "", uint64(offset), 0)
		},
	}, nil
}

// sniffed is how much of a file tells what it is, in bytes.
const sniffed = 512

// head returns the beginning, and reading starts at it again.
func (f *remoteFile) head() ([]byte, error) {
	b := make([]byte, sniffed)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return b[:n], err
}

func (f *remoteFile) Read(p []byte) (int, error) {
	// What was read to look at the beginning is read again without another call.
	if off := f.at - f.from; off >= 0 && off < int64(len(f.rest)) {
		n := copy(p, f.rest[off:])
		f.at += int64(n)
		return n, nil
	}
	if f.stream == nil || f.at != f.from+int64(len(f.rest)) {
		f.Close()
		d, err := f.read(f.at)
		if err != nil {
			return 0, err
		}
		f.stream, f.from, f.rest = d, f.at, nil
	}
	n, err := f.stream.Read(p)
	if len(f.rest)+n <= sniffed {
		f.rest = append(f.rest, p[:n]...)
	} else {
		f.from, f.rest = f.at+int64(n), nil
	}
	f.at += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of the file")
	}
	f.at = offset
	return offset, nil
}

// Close ends the transfer that is under way.
func (f *remoteFile) Close() {
	if f.stream != nil {
		f.stream.Close()
		f.stream = nil
	}
}
