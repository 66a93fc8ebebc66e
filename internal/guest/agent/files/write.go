package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// Write receives a file. Without the commit of the last message nothing is kept.
func (Service) Write(_ context.Context, in *connect.ClientStream[agentv1.WriteRequest]) (*agentv1.FileInfo, error) {
	if !in.Receive() {
		return nil, cutShort(in.Err())
	}
	header := in.Msg().Header
	if header == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message has no header"))
	}
	id, path, err := resolve(header.Path, header.User)
	if err != nil {
		return nil, err
	}
	u := &upload{id: id, path: path, attributes: header.Attributes}
	if u.owner, err = ownerFor(id, header.Owner); err != nil {
		return nil, err
	}
	if err := u.open(header); err != nil {
		return nil, fail(path, err)
	}
	defer u.discard()
	for {
		message := in.Msg()
		if _, err := u.temp.Write(message.Data); err != nil {
			return nil, fail(path, err)
		}
		if message.Commit {
			break
		}
		if !in.Receive() {
			return nil, cutShort(in.Err())
		}
	}
	if err := u.commit(); err != nil {
		return nil, fail(path, err)
	}
	return id.info(u.path, true)
}

// cutShort is the error of an upload that ended without its commit.
func cutShort(err error) error {
	if err != nil {
		return err
	}
	return connect.NewError(connect.CodeCanceled, errors.New("the upload ended before it was complete"))
}

// upload is a file on its way in.
type upload struct {
	id    *identity
	owner *identity // nil: the user, or who has the file that is replaced
	path  string    // where it goes, links resolved
	temp  *os.File
	mode  uint32
	// attributes are all that the file has; those of the one that it replaces go with it.
	attributes map[string]string
	// replaces is the file that is there now, or nil.
	replaces *unix.Stat_t
}

// open checks the place and makes the temporary file in it.
func (u *upload) open(header *agentv1.WriteHeader) error {
	if header.Mode&^modeBits != 0 {
		return unix.EINVAL
	}
	if err := checkAttributes(u.attributes); err != nil {
		return err
	}
	return u.id.do(func() error {
		if header.MakeParents {
			if err := makeParents(u.path, u.owner); err != nil {
				return err
			}
		}
		if err := u.inspect(); err != nil {
			return err
		}
		u.mode = header.Mode
		if u.mode == 0 {
			u.mode = 0o644
			if u.replaces != nil {
				u.mode = u.replaces.Mode & modeBits
			}
			if u.id.uid != 0 || u.owner != nil {
				u.mode &= 0o1777 // as a write by a user clears setuid and setgid
			}
		}
		f, err := os.OpenFile(TemporaryName(u.path), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		u.temp = f
		return err
	})
}

// The names of files that are not whole yet: the prefix and as many characters as rand.Text has.
const (
	temporaryPrefix = ".ramet-"
	temporaryRandom = 26
)

// TemporaryName is where the content of a file waits until it is whole. A watch does not tell of it.
func TemporaryName(path string) string {
	return filepath.Join(filepath.Dir(path), temporaryPrefix+rand.Text())
}

func isTemporary(name string) bool {
	random, ok := strings.CutPrefix(name, temporaryPrefix)
	return ok && len(random) == temporaryRandom && strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// inspect follows links to the place of the file, and refuses to replace what
// is no regular file, or what the user could not have written to.
func (u *upload) inspect() error {
	var st unix.Stat_t
	if err := unix.Lstat(u.path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := filepath.EvalSymlinks(u.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link to nothing is replaced
		}
		if err != nil {
			return err
		}
		u.path = target
		if err := unix.Lstat(u.path, &st); err != nil {
			return err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return connect.NewError(connect.CodeFailedPrecondition, errors.New(u.path+" is not a regular file"))
	}
	if err := unix.Faccessat(unix.AT_FDCWD, u.path, unix.W_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	u.replaces = &st
	return nil
}

// commit gives the complete file its owner, mode and name.
func (u *upload) commit() error {
	fd := int(u.temp.Fd())
	if u.owner != nil {
		if err := unix.Fchown(fd, u.owner.uid, u.owner.gid); err != nil {
			return err
		}
	} else if r := u.replaces; r != nil && (int(r.Uid) != u.id.uid || int(r.Gid) != u.id.gid) {
		// As root, also for a user who writes to somebody else's file.
		if err := unix.Fchown(fd, int(r.Uid), int(r.Gid)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, u.mode); err != nil { // after chown, which clears bits
		return err
	}
	if err := setAttributes(fd, u.attributes); err != nil {
		return err
	}
	name := u.temp.Name()
	if err := u.temp.Close(); err != nil {
		return err
	}
	err := u.id.do(func() error { return unix.Rename(name, u.path) })
	if err == nil {
		u.temp = nil
	}
	return err
}

// discard removes what is left of a file that was not committed.
func (u *upload) discard() {
	if u.temp == nil {
		return
	}
	_ = u.temp.Close()
	_ = u.id.do(func() error { return os.Remove(u.temp.Name()) })
}
