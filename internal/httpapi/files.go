package httpapi

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// copyBuffer is how much of a download is written at once, in bytes.
const copyBuffer = 256 << 10

// ReadFile streams a file, or a part of it.
func (s *Server) ReadFile(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.ReadFileParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	want := r.Header.Get("Range")
	if r.Method == http.MethodHead || want != "" {
		info, err := s.control.Stat(r.Context(), project(r), parsed, params.Path, value(params.User), true)
		if err == nil && info.Type != "file" && (r.Method == http.MethodHead || info.Type == "directory") {
			err = sandbox.Errorf(sandbox.Conflict, "not_a_file", "the path is a %s, not a file", info.Type)
		}
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		if r.Method == http.MethodHead {
			fileHeaders(w, info)
			w.Header().Set("Content-Length", strconv.FormatUint(info.Size, 10))
			w.WriteHeader(http.StatusOK)
			return
		}
		if part, ok := parseRange(want, info.Size); ok {
			s.readPart(w, r, parsed, params, info, part)
			return
		}
	}
	d, err := s.control.ReadFile(r.Context(), project(r), parsed, params.Path, value(params.User), 0, 0)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	defer d.Close()
	fileHeaders(w, d.Info)
	// No length: a file may grow or shrink while it is read. Chunked encoding has a
	// terminator, so a client sees whether it has got all.
	s.copyOut(w, r, d, http.StatusOK)
}

// readPart answers a request for one range.
func (s *Server) readPart(w http.ResponseWriter, r *http.Request, id sandbox.ID, params rametv1.ReadFileParams, info *control.FileInfo, part byteRange) {
	if part.length == 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
		s.writeError(w, r, &httpError{
			status: http.StatusRequestedRangeNotSatisfiable, code: "range_not_satisfiable",
			message: fmt.Sprintf("the file has %d bytes; the asked range is behind its end", info.Size),
		})
		return
	}
	d, err := s.control.ReadFile(r.Context(), project(r), id, params.Path, value(params.User), part.start, part.length)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	defer d.Close()
	fileHeaders(w, info)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.start, part.start+part.length-1, info.Size))
	w.Header().Set("Content-Length", strconv.FormatUint(part.length, 10))
	s.copyOut(w, r, d, http.StatusPartialContent)
}

func fileHeaders(w http.ResponseWriter, info *control.FileInfo) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", time.Unix(0, info.ModifiedUnixNanos).UTC().Format(http.TimeFormat))
	h.Set("X-File-Size", strconv.FormatUint(info.Size, 10))
}

// copyOut sends content. When it breaks off midway the connection is broken off too: a
// client must never take a part for the whole.
func (s *Server) copyOut(w http.ResponseWriter, r *http.Request, from io.Reader, status int) {
	w.WriteHeader(status)
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, from, make([]byte, copyBuffer))
	if err != nil {
		requestOf(r.Context()).err = err
		panic(http.ErrAbortHandler)
	}
}

// byteRange is a part of a file. Length 0 means that there is nothing of it.
type byteRange struct{ start, length uint64 }

// parseRange reads a Range header with one range of bytes. Any other is ignored,
// as RFC 9110 allows.
func parseRange(header string, size uint64) (byteRange, bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok || strings.Contains(spec, ",") {
		return byteRange{}, false
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return byteRange{}, false
	}
	if first == "" { // the last n bytes
		n, err := strconv.ParseUint(last, 10, 63)
		if err != nil {
			return byteRange{}, false
		}
		n = min(n, size)
		return byteRange{size - n, n}, true
	}
	start, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return byteRange{}, false
	}
	end := uint64(math.MaxInt64)
	if last != "" {
		if end, err = strconv.ParseUint(last, 10, 63); err != nil || end < start {
			return byteRange{}, false
		}
	}
	if start >= size {
		return byteRange{start: start}, true
	}
	return byteRange{start, min(end, size-1) - start + 1}, true
}

// WriteFile makes the body a file.
func (s *Server) WriteFile(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.WriteFileParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	mode, err := parseMode(value(params.Mode))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	attributes, err := parseAttributes(value(params.Attribute))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	rollBody(r)
	info, err := s.control.WriteFileWith(r.Context(), project(r), parsed, params.Path, control.WriteOptions{
		User: value(params.User), Mode: mode, Parents: value(params.Parents), Attributes: attributes,
	}, r.Body)
	s.writeInfo(w, r, info, err)
}

func (s *Server) writeInfo(w http.ResponseWriter, r *http.Request, info *control.FileInfo, err error) {
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, toFileInfo(info))
}

func toFileInfo(f *control.FileInfo) rametv1.FileInfo {
	out := rametv1.FileInfo{
		Path: f.Path, Type: f.Type, Size: int64(f.Size), Mode: fmt.Sprintf("%04o", f.Mode),
		Uid: int(f.Uid), Gid: int(f.Gid), Owner: f.Owner, Group: f.Group, ModifiedAt: modified(f.ModifiedUnixNanos),
	}
	if f.LinkTarget != "" {
		out.LinkTarget = &f.LinkTarget
	}
	if len(f.Attributes) > 0 {
		out.Attributes = &f.Attributes
	}
	return out
}

// parseAttributes reads name=value pairs.
func parseAttributes(pairs []string) (map[string]string, error) {
	set := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := set[name]; !ok || twice {
			return nil, badRequest("invalid_attributes", "attribute has to be name=value, once for each name")
		}
		set[name] = value
	}
	return set, nil
}

// modified keeps a guest's time within what JSON's form of times can say.
func modified(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// parseMode reads permission bits in octal; "" is 0, the default.
func parseMode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, badRequest("invalid_mode", "mode is %q; it has to be octal, from 0 to 7777", short(s))
	}
	return uint32(n), nil
}

// RemoveFile removes a file or directory.
func (s *Server) RemoveFile(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.RemoveFileParams) {
	parsed, err := sandbox.ParseID(id)
	if err == nil {
		err = s.control.Remove(r.Context(), project(r), parsed, params.Path, value(params.User), value(params.Recursive))
	}
	s.writeDone(w, r, err)
}

// ListFiles lists a directory.
func (s *Server) ListFiles(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.ListFilesParams) {
	depth := 1
	if params.Depth != nil {
		depth = *params.Depth
	}
	if depth < 1 || depth > 64 {
		s.writeError(w, r, badRequest("invalid_depth", "depth is %d; it can be 1 to 64", depth))
		return
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	list, more, err := s.control.ListFiles(r.Context(), project(r), parsed, params.Path, value(params.User), uint32(depth))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.FileList{Files: make([]rametv1.FileInfo, 0, len(list))}
	for _, f := range list {
		out.Files = append(out.Files, toFileInfo(f))
	}
	if more {
		out.Truncated = &more
	}
	s.writeJSON(w, r, out)
}

// StatFile describes a path.
func (s *Server) StatFile(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.StatFileParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	info, err := s.control.Stat(r.Context(), project(r), parsed, params.Path, value(params.User), value(params.Follow))
	s.writeInfo(w, r, info, err)
}

// fileCall is a call on files whose arguments are a JSON body.
func fileCall[B any](s *Server, w http.ResponseWriter, r *http.Request, id string, f func(B, sandbox.ID) (*control.FileInfo, error)) {
	var body B
	err := decode(w, r, maxBody, false, &body)
	var parsed sandbox.ID
	if err == nil {
		parsed, err = sandbox.ParseID(id)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	info, err := f(body, parsed)
	s.writeInfo(w, r, info, err)
}

// MakeDirectory makes a directory.
func (s *Server) MakeDirectory(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	fileCall(s, w, r, id, func(b rametv1.MakeDirectory, id sandbox.ID) (*control.FileInfo, error) {
		mode, err := parseMode(value(b.Mode))
		if err != nil {
			return nil, err
		}
		return s.control.Mkdir(r.Context(), project(r), id, b.Path, value(b.User), mode, value(b.Parents))
	})
}

// MoveFile moves or renames.
func (s *Server) MoveFile(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	fileCall(s, w, r, id, func(b rametv1.MoveFile, id sandbox.ID) (*control.FileInfo, error) {
		return s.control.Move(r.Context(), project(r), id, b.From, b.To, value(b.User), value(b.Overwrite))
	})
}

// SetFileAttributes changes mode, owner or group.
func (s *Server) SetFileAttributes(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	fileCall(s, w, r, id, func(b rametv1.FileAttributes, id sandbox.ID) (*control.FileInfo, error) {
		var mode *uint32
		if value(b.Mode) != "" {
			m, err := parseMode(*b.Mode)
			if err != nil {
				return nil, err
			}
			mode = &m
		}
		return s.control.SetAttributes(r.Context(), project(r), id, b.Path, value(b.User), mode, value(b.Owner), value(b.Group))
	})
}

// ReadArchive streams a tar.
func (s *Server) ReadArchive(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.ReadArchiveParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	d, err := s.control.ReadArchive(r.Context(), project(r), parsed, params.Path, value(params.User))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	defer d.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(archiveName(params.Path)))
	s.copyOut(w, r, d, http.StatusOK)
}

// archiveName makes a plain file name of a path.
func archiveName(p string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '_'
	}, path.Base(p))
	if name == "" || name == "." || name == "_" {
		name = "archive"
	}
	return name + ".tar"
}

// WriteArchive unpacks a tar.
func (s *Server) WriteArchive(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.WriteArchiveParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	rollBody(r)
	files, bytes, err := s.control.WriteArchive(r.Context(), project(r), parsed, params.Path, value(params.User), r.Body)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.Extracted{Files: int64(files), Bytes: int64(bytes)})
}
