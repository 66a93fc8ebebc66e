package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
)

// Service implements agentv1connect.FilesHandler. It has no state.
type Service struct{}

var _ agentv1connect.FilesHandler = Service{}

// chunkSize is how much of a file goes into one message, in bytes.
const chunkSize = 256 << 10

// resolve finds the user and makes path absolute.
func resolve(path, user string) (*identity, string, error) {
	id, err := lookupIdentity(user)
	if err != nil {
		return nil, "", err
	}
	path, err = id.absolute(path)
	return id, path, err
}

func (id *identity) absolute(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", connect.NewError(connect.CodeInvalidArgument, errors.New("the path is empty or contains a NUL byte"))
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(id.home, path)
	}
	return filepath.Clean(path), nil
}

// info answers a call that has changed path.
func (id *identity) info(path string, follow bool) (*agentv1.FileInfo, error) {
	var info *agentv1.FileInfo
	err := id.do(func() (err error) {
		info, err = stat(path, follow)
		return err
	})
	if err != nil {
		return nil, fail(path, err)
	}
	return newNames().describe(info), nil
}

// Stat describes one file.
func (Service) Stat(_ context.Context, r *agentv1.StatRequest) (*agentv1.FileInfo, error) {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return nil, err
	}
	return id.info(path, r.Follow)
}

// Mkdir makes a directory. With parents it makes what is missing above it, and
// is content with a directory that exists.
func (Service) Mkdir(_ context.Context, r *agentv1.MkdirRequest) (*agentv1.FileInfo, error) {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return nil, err
	}
	if r.Mode&^modeBits != 0 {
		return nil, fail(path, unix.EINVAL)
	}
	owner, err := ownerFor(id, r.Owner)
	if err != nil {
		return nil, err
	}
	err = id.do(func() error {
		if r.Parents {
			if st, err := os.Stat(path); err == nil && st.IsDir() {
				return nil
			}
			if err := makeParents(path, owner); err != nil {
				return err
			}
		}
		if err := makeDirectory(path, owner); err != nil {
			return err
		}
		if r.Mode != 0 {
			return unix.Chmod(path, r.Mode) // not weakened by the umask
		}
		return nil
	})
	if err != nil {
		return nil, fail(path, err)
	}
	return id.info(path, true)
}

// Move renames a file or directory.
func (Service) Move(_ context.Context, r *agentv1.MoveRequest) (*agentv1.FileInfo, error) {
	id, from, err := resolve(r.From, r.User)
	if err != nil {
		return nil, err
	}
	to, err := id.absolute(r.To)
	if err != nil {
		return nil, err
	}
	owner, err := ownerFor(id, r.Owner)
	if err != nil {
		return nil, err
	}
	var flags uint = unix.RENAME_NOREPLACE
	if r.Overwrite {
		flags = 0
	}
	blame := from
	err = id.do(func() error {
		var st unix.Stat_t
		if err := unix.Lstat(from, &st); err != nil {
			return err
		}
		blame = to
		if r.MakeParents {
			if err := makeParents(to, owner); err != nil {
				return err
			}
		}
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	})
	if err != nil {
		return nil, fail(blame, err)
	}
	return id.info(to, false)
}

// Remove removes a file, an empty directory, or with recursive all that is in it.
func (Service) Remove(_ context.Context, r *agentv1.RemoveRequest) (*agentv1.RemoveResponse, error) {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, fail(path, unix.EBUSY)
	}
	err = id.do(func() error {
		if _, err := os.Lstat(path); err != nil {
			return err // RemoveAll is content with nothing
		}
		if r.Recursive {
			return os.RemoveAll(path)
		}
		return os.Remove(path)
	})
	if err != nil {
		return nil, fail(path, err)
	}
	return &agentv1.RemoveResponse{}, nil
}

// SetAttributes changes mode and owner.
func (Service) SetAttributes(_ context.Context, r *agentv1.SetAttributesRequest) (*agentv1.FileInfo, error) {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return nil, err
	}
	uid, err := ownerNumber(r.Owner, "user", userNumber)
	if err != nil {
		return nil, err
	}
	gid, err := ownerNumber(r.Group, "group", groupNumber)
	if err != nil {
		return nil, err
	}
	if r.GetMode()&^modeBits != 0 {
		return nil, fail(path, unix.EINVAL)
	}
	err = id.do(func() error {
		// Owner first: changing it clears the setuid bits.
		if uid >= 0 || gid >= 0 {
			if err := unix.Lchown(path, uid, gid); err != nil {
				return err
			}
		}
		if r.Mode != nil {
			return unix.Chmod(path, r.GetMode())
		}
		return nil
	})
	if err != nil {
		return nil, fail(path, err)
	}
	return id.info(path, false)
}

// ownerNumber turns a name or number into an id, and nothing into -1.
func ownerNumber(name, what string, lookup func(string) (string, error)) (int, error) {
	if name == "" {
		return -1, nil
	}
	number := name
	if s, err := lookup(name); err == nil {
		number = s
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no such %s: %.64q", what, name))
	}
	return int(n), nil
}

func userNumber(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupNumber(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
