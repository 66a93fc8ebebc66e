package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"runtime"
	"strconv"
	"unsafe"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// identity is the user of the guest for whom a call works.
type identity struct {
	uid, gid int
	groups   []uint32
	home     string
}

var rootIdentity = &identity{home: "/root"}

// lookupIdentity finds a user by name or number; the empty name is root.
func lookupIdentity(name string) (*identity, error) {
	if name == "" || name == "root" {
		return rootIdentity, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no such user: %.64q", name))
	}
	id := &identity{home: u.HomeDir}
	if id.uid, err = strconv.Atoi(u.Uid); err != nil {
		return nil, err
	}
	if id.gid, err = strconv.Atoi(u.Gid); err != nil {
		return nil, err
	}
	names, err := u.GroupIds()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("groups of %s: %w", u.Username, err)
	}
	for _, s := range names {
		gid, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, err
		}
		id.groups = append(id.groups, uint32(gid))
	}
	return id, nil
}

// do runs f with the identity's rights on files. The rights belong to the
// thread: f must not start goroutines that touch files, and what it opens may
// be used afterwards by anybody. Calls do not nest.
//
// For the file-system user of a thread the kernel drops the capabilities that
// override permissions by itself. The calls are made raw, because those of
// package syscall would change every thread of the agent.
func (id *identity) do(f func() error) error {
	if id.uid == 0 {
		return f()
	}
	runtime.LockOSThread()
	if err := id.assume(); err != nil {
		if rootIdentity.assume() == nil {
			runtime.UnlockOSThread()
		}
		return err
	}
	defer func() {
		// A thread that cannot be brought back stays locked, and ends with its
		// goroutine.
		if rootIdentity.assume() == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// assume gives the calling thread the identity's rights on files.
func (id *identity) assume() error {
	if id.uid == 0 {
		// First, since only root may change the other two.
		if err := setFileUser(unix.SYS_SETFSUID, 0); err != nil {
			return err
		}
	}
	var first unsafe.Pointer
	if len(id.groups) > 0 {
		first = unsafe.Pointer(&id.groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(id.groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("set groups: %w", errno)
	}
	if err := setFileUser(unix.SYS_SETFSGID, id.gid); err != nil {
		return err
	}
	return setFileUser(unix.SYS_SETFSUID, id.uid)
}

// setFileUser calls setfsuid or setfsgid. They report no errors, but return the
// old value; an impossible value changes nothing and tells the current one. gVisor has neither; there the
// effective user or group of the thread takes their place.
func setFileUser(call uintptr, id int) error {
	if _, _, errno := unix.RawSyscall(call, uintptr(id), 0, 0); errno == unix.ENOSYS {
		effective := uintptr(unix.SYS_SETRESUID)
		if call == unix.SYS_SETFSGID {
			effective = unix.SYS_SETRESGID
		}
		if _, _, errno := unix.RawSyscall(effective, ^uintptr(0), uintptr(id), ^uintptr(0)); errno != 0 {
			return fmt.Errorf("become user or group %d: %w", id, errno)
		}
		return nil
	}
	now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0)
	if int32(now) != int32(id) {
		return fmt.Errorf("become user or group %d: %w", id, unix.EPERM)
	}
	return nil
}
