package envd

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/control"
)

// attributePrefix is what the names of the extended attributes have that hold metadata,
// without "user.".
const attributePrefix = "e2b."

// maxLinks bounds how many links of one answer are looked up, each of which is a call.
const maxLinks = 500

var fileTypes = map[string]envdv1.FileType{
	"file": envdv1.FileType_FILE_TYPE_FILE, "directory": envdv1.FileType_FILE_TYPE_DIRECTORY, "symlink": envdv1.FileType_FILE_TYPE_SYMLINK,
}

// entries describes files as clients know them. Of links it looks up what they lead to.
func (s *Server) entries(ctx context.Context, c *call, infos ...*control.FileInfo) []*envdv1.EntryInfo {
	out := make([]*envdv1.EntryInfo, 0, len(infos))
	links := 0
	for _, info := range infos {
		e := entry(info)
		if info.Type == "symlink" && links < maxLinks {
			links++
			// A link to nothing stays what it is.
			if target, err := s.control.Stat(ctx, c.Project, c.ID, info.Path, "", true); err == nil {
				e.Type = fileTypes[target.Type]
			}
		}
		out = append(out, e)
	}
	return out
}

// entry describes a file as far as its own record goes.
func entry(f *control.FileInfo) *envdv1.EntryInfo {
	e := &envdv1.EntryInfo{
		Name: path.Base(f.Path), Type: fileTypes[f.Type], Path: f.Path, Size: int64(f.Size), Mode: f.Mode & 0o777,
		Permissions: permissions(f), Owner: f.Owner, Group: f.Group,
		ModifiedTime: timestamppb.New(time.Unix(0, f.ModifiedUnixNanos)), Metadata: metadataOf(f),
	}
	if f.Type == "symlink" {
		e.IsSymlink = true
		target := f.LinkTarget
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(f.Path), target)
		}
		e.SymlinkTarget = &target
	}
	return e
}

// permissions writes them as Go does, which is what E2B's servers send.
func permissions(f *control.FileInfo) string {
	mode := fs.FileMode(f.Mode & 0o777)
	for bit, has := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if f.Mode&bit != 0 {
			mode |= has
		}
	}
	switch f.Type {
	case "directory":
		mode |= fs.ModeDir
	case "symlink":
		mode |= fs.ModeSymlink
	case "other":
		mode |= fs.ModeIrregular
	}
	return mode.String()
}

// metadataOf returns what an upload has noted at a file, nil when nothing.
func metadataOf(f *control.FileInfo) map[string]string {
	var out map[string]string
	for name, value := range f.Attributes {
		if key, ok := strings.CutPrefix(name, attributePrefix); ok && key != "" {
			if out == nil {
				out = make(map[string]string)
			}
			out[key] = value
		}
	}
	return out
}
