package files

import (
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// modeBits are the bits of st_mode that chmod(2) sets.
const modeBits = 0o7777

// names remembers the names of users and groups for one call.
type names struct{ users, groups map[uint32]string }

func newNames() *names {
	return &names{users: map[uint32]string{}, groups: map[uint32]string{}}
}

func (n *names) user(id uint32) string {
	name, ok := n.users[id]
	if !ok {
		if u, err := user.LookupId(strconv.Itoa(int(id))); err == nil {
			name = u.Username
		}
		n.users[id] = name
	}
	return name
}

func (n *names) group(id uint32) string {
	name, ok := n.groups[id]
	if !ok {
		if g, err := user.LookupGroupId(strconv.Itoa(int(id))); err == nil {
			name = g.Name
		}
		n.groups[id] = name
	}
	return name
}

// stat describes the file at path. Names are left out; describe adds them.
func stat(path string, follow bool) (*agentv1.FileInfo, error) {
	var st unix.Stat_t
	call := unix.Lstat
	if follow {
		call = unix.Stat
	}
	if err := call(path, &st); err != nil {
		return nil, err
	}
	info := fromStat(path, &st)
	info.Attributes = Attributes(path, follow)
	if info.Type == "symlink" {
		// It may be gone by now; then the link has no target.
		info.LinkTarget, _ = os.Readlink(path)
	}
	return info, nil
}

func fromStat(path string, st *unix.Stat_t) *agentv1.FileInfo {
	info := &agentv1.FileInfo{
		Path: path, Type: "other", Size: uint64(st.Size), Mode: st.Mode & modeBits,
		Uid: st.Uid, Gid: st.Gid, ModifiedUnixNanos: st.Mtim.Nano(),
		ChangedUnixNanos: st.Ctim.Nano(), Inode: st.Ino,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type = "file"
	case unix.S_IFDIR:
		info.Type = "directory"
	case unix.S_IFLNK:
		info.Type = "symlink"
	}
	return info
}

// describe adds the names of the owners. It reads the guest's user database,
// so it is called without the rights of a user.
func (n *names) describe(info *agentv1.FileInfo) *agentv1.FileInfo {
	info.Owner, info.Group = n.user(info.Uid), n.group(info.Gid)
	return info
}
