package exec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ErrNoUser means that the users database has no such user.
var ErrNoUser = errors.New("no such user")

// User is an account of the guest.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary, without GID
	Home   string
	Shell  string
}

// Users reads the guest's accounts. It parses the files at each lookup: they
// are small, and a user made a moment ago must be found.
type Users struct {
	Passwd string // usually /etc/passwd
	Group  string // usually /etc/group
}

// Lookup finds a user by name, or by number in decimal. The empty name is
// root, which is found even where there is no database. A user that is in no
// file is ErrNoUser.
func (u Users) Lookup(name string) (*User, error) {
	if name == "" {
		name = "root"
	}
	found, err := u.find(name)
	if err != nil {
		if name == "root" && (errors.Is(err, ErrNoUser) || errors.Is(err, os.ErrNotExist)) {
			return &User{Name: "root", Home: "/root", Shell: "/bin/sh"}, nil
		}
		return nil, err
	}
	groups, err := u.groups(found)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	found.Groups = groups
	return found, nil
}

func (u Users) find(name string) (*User, error) {
	f, err := os.Open(u.Passwd)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, numberErr := strconv.ParseUint(name, 10, 32)
	var found *User
	err = eachLine(f, func(fields []string) bool {
		if len(fields) < 7 || fields[0] != name && (numberErr != nil || fields[2] != name) {
			return true
		}
		uid, err1 := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		if err1 != nil || err2 != nil {
			return true
		}
		found = &User{Name: fields[0], UID: uint32(uid), GID: uint32(gid), Home: fields[5], Shell: fields[6]}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", u.Passwd, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoUser, name)
	}
	if found.Home == "" {
		found.Home = "/"
	}
	if found.Shell == "" {
		found.Shell = "/bin/sh"
	}
	return found, nil
}

func (u Users) groups(user *User) ([]uint32, error) {
	f, err := os.Open(u.Group)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var groups []uint32
	err = eachLine(f, func(fields []string) bool {
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), user.Name) {
			return true
		}
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && uint32(gid) != user.GID {
			groups = append(groups, uint32(gid))
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", u.Group, err)
	}
	return groups, nil
}

// eachLine calls do with the fields of every line until it returns false.
func eachLine(f io.Reader, do func(fields []string) bool) error {
	const maxFile = 16 << 20 // a hostile file must not fill our memory
	scan := bufio.NewScanner(io.LimitReader(f, maxFile))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !do(strings.Split(line, ":")) {
			return nil
		}
	}
	return scan.Err()
}
