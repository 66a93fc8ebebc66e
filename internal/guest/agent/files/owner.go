package files

import (
	"errors"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// ownerFor finds the user to whom root gives what a call makes. It is nil for the empty
// name: then everything belongs to the caller.
func ownerFor(id *identity, name string) (*identity, error) {
	if name == "" {
		return nil, nil
	}
	if id.uid != 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("only root can make files that belong to somebody else"))
	}
	return lookupIdentity(name)
}

// makeParents makes the directories above path that are missing, and gives those to
// owner, when there is one.
func makeParents(path string, owner *identity) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	switch {
	case err == nil && !st.IsDir():
		return unix.ENOTDIR
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := makeParents(dir, owner); err != nil {
		return err
	}
	err = makeDirectory(dir, owner)
	if errors.Is(err, unix.EEXIST) {
		return nil // somebody else made it meanwhile; what it is shows what comes next
	}
	return err
}

func makeDirectory(path string, owner *identity) error {
	if err := unix.Mkdir(path, 0o755); err != nil || owner == nil {
		return err
	}
	return unix.Lchown(path, owner.uid, owner.gid)
}
