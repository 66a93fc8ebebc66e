package envd

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// written is what an upload's answer says of one file.
type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// maxUploads bounds the files of one request.
const maxUploads = 10000

// writeFiles takes one file or several.
func (s *Server) writeFiles(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	nameUser(r, c)
	if err := maySee(r, c, "write"); err != nil {
		s.fail(w, r, err)
		return
	}
	attributes, err := metadata(r.Header)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body, err := decoded(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	u := &upload{s: s, c: c, ctx: r.Context(), attributes: attributes, path: r.URL.Query().Get("path"), seen: map[string]bool{}}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		err = badRequest("the Content-Type is missing or wrong; send multipart/form-data or application/octet-stream")
	case kind == "application/octet-stream":
		if u.path == "" {
			err = badRequest("path is missing; say in the query where the file goes")
		} else {
			err = u.file(u.path, body)
		}
	case kind == "multipart/form-data" && params["boundary"] != "":
		err = u.parts(multipart.NewReader(body, params["boundary"]))
	default:
		err = badRequest("the Content-Type %s is not understood; send multipart/form-data or application/octet-stream", shorten(kind))
	}
	if err != nil {
		// A client that still sends when the connection is closed may never see why. The body has
		// its deadline.
		_, _ = io.CopyN(io.Discard, r.Body, drained)
		s.fail(w, r, uploadError(err))
		return
	}
	writeJSON(w, http.StatusOK, u.done)
}

// drained is how much of the body of a failed upload is taken all the same, in bytes.
const drained = 64 << 20

// decoded undoes the encoding of a request's body.
func decoded(r *http.Request) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, badRequest("the body is not in gzip's format")
		}
		return z, nil
	}
	return nil, badRequest("the Content-Encoding %s is not understood; use gzip or none", shorten(r.Header.Get("Content-Encoding")))
}

// uploadError says in this surface's words what went wrong with an upload.
func uploadError(err error) error {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Code == "no_space" {
		return &httpError{http.StatusInsufficientStorage, "not enough disk space available"}
	}
	return err
}

// upload is a request that writes files.
type upload struct {
	s          *Server
	c          *call
	ctx        context.Context
	attributes map[string]string
	path       string // of the query
	seen       map[string]bool
	done       []written
}

// parts takes the files of a form as they come.
func (u *upload) parts(form *multipart.Reader) error {
	for {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && len(u.done) == 0:
			return badRequest("the form has no file; send it as the field named file")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badRequest("the form ended early or is malformed")
		}
		if part.FormName() != "file" {
			continue
		}
		if len(u.done) == maxUploads {
			return badRequest("the form has too many files; send up to %d at once", maxUploads)
		}
		name := u.path
		if name == "" {
			if name = fileName(part.Header.Get("Content-Disposition")); name == "" {
				return badRequest("a file of the form has no name; say where it goes by its filename, or by path in the query")
			}
		}
		if err := u.file(name, part); err != nil {
			return err
		}
	}
}

// fileName returns the file name of a part. It is a path, which multipart.Part.FileName would cut.
func fileName(disposition string) string {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return ""
	}
	return params["filename"]
}

// file writes one file.
func (u *upload) file(name string, content io.Reader) error {
	full, err := u.s.resolve(u.ctx, u.c, name)
	if err != nil {
		return err
	}
	if u.seen[full] {
		return badRequest("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", shorten(full))
	}
	u.seen[full] = true
	info, err := u.s.control.WriteFileWith(u.ctx, u.c.Project, u.c.ID, full, control.WriteOptions{Parents: true, Owner: u.c.user, Attributes: u.attributes}, content)
	if err != nil {
		var e *sandbox.Error
		if errors.As(err, &e) && e.Code == "is_a_directory" {
			return badRequest("path is a directory: %s", shorten(full))
		}
		return err
	}
	u.done = append(u.done, newWritten(full, info, u.attributes))
	return nil
}

func newWritten(name string, info *control.FileInfo, attributes map[string]string) written {
	w := written{Path: name, Name: path.Base(name), Type: "file", Metadata: metadataOf(info)}
	if w.Metadata == nil {
		w.Metadata = metadataOf(&control.FileInfo{Attributes: attributes})
	}
	return w
}

// maxCompose bounds the request of a composition, in bytes, and maxParts its files.
const (
	maxCompose = 1 << 20
	maxParts   = 1000
)

// compose makes one file out of several, which then are removed: the last step of an upload in parts.
func (s *Server) compose(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	var req struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCompose)).Decode(&req); err != nil {
		s.fail(w, r, badRequest("the body is not the JSON of a composition: source_paths and destination"))
		return
	}
	if len(req.Sources) == 0 || len(req.Sources) > maxParts || req.Destination == "" {
		s.fail(w, r, badRequest("give destination and 1 to %d source_paths", maxParts))
		return
	}
	if req.Username != "" {
		c.user, c.named = req.Username, true
	}
	out, err := s.join(r.Context(), c, req.Sources, req.Destination)
	if err != nil {
		s.fail(w, r, uploadError(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) join(ctx context.Context, c *call, sources []string, destination string) (written, error) {
	to, err := s.resolve(ctx, c, destination)
	if err != nil {
		return written{}, err
	}
	parts := &partsReader{}
	defer parts.close()
	from := make([]string, 0, len(sources))
	for _, name := range sources {
		full, err := s.resolve(ctx, c, name)
		if err != nil {
			return written{}, err
		}
		f, err := s.open(ctx, c, full)
		if err != nil {
			return written{}, err
		}
		from = append(from, full)
		parts.files = append(parts.files, f)
	}
	info, err := s.control.WriteFileWith(ctx, c.Project, c.ID, to, control.WriteOptions{Parents: true, Owner: c.user}, parts)
	if err != nil {
		if parts.err != nil {
			err = parts.err
		}
		return written{}, err
	}
	for _, name := range from {
		if name == to {
			continue
		}
		if err := s.control.Remove(ctx, c.Project, c.ID, name, "", false); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return written{}, err
		}
	}
	return newWritten(to, info, nil), nil
}

// partsReader reads files one after the other.
type partsReader struct {
	files []*remoteFile
	err   error // why one could not be read
}

func (p *partsReader) Read(b []byte) (int, error) {
	for len(p.files) > 0 {
		n, err := p.files[0].Read(b)
		if errors.Is(err, io.EOF) {
			p.files[0].Close()
			p.files = p.files[1:]
			err = nil
		}
		if err != nil {
			p.err = err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.EOF
}

func (p *partsReader) close() {
	for _, f := range p.files {
		f.Close()
	}
}
