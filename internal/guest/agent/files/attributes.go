package files

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

const (
	// attributePrefix is the kernel's name space of what users attach to their files.
	attributePrefix = "user."
	// MaxAttributes and maxAttributeBytes bound what is set, and what is told of a file. ext4
	// keeps no more than 4 KiB of them.
	MaxAttributes     = 64
	maxAttributeBytes = 16 << 10
	// maxAttributeName is the kernel's limit, with the prefix.
	maxAttributeName = 255
)

// Attributes returns the attributes of a file that are text, as far as the bounds go. A file
// whose attributes the user may not read, and a file system without any, have none.
func Attributes(path string, follow bool) map[string]string {
	list, get := unix.Llistxattr, unix.Lgetxattr
	if follow {
		list, get = unix.Listxattr, unix.Getxattr
	}
	// Most files have none. A list too long for the buffer is an error, and told as none.
	var names [4096]byte
	n, err := list(path, names[:])
	if err != nil || n == 0 {
		return nil
	}
	var out map[string]string
	var value [maxAttributeBytes]byte
	left := maxAttributeBytes
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		short, ours := strings.CutPrefix(name, attributePrefix)
		if !ours || short == "" || !utf8.ValidString(short) || len(out) == MaxAttributes {
			continue
		}
		n, err := get(path, name, value[:])
		if err != nil || !utf8.Valid(value[:n]) {
			continue
		}
		if left -= len(short) + n; left < 0 {
			break
		}
		if out == nil {
			out = map[string]string{}
		}
		out[short] = string(value[:n])
	}
	return out
}

// checkAttributes says what is wrong with attributes that are to be set.
func checkAttributes(set map[string]string) error {
	size := 0
	for name, value := range set {
		if name == "" || len(attributePrefix)+len(name) > maxAttributeName || strings.ContainsRune(name, 0) {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the name of an attribute has to have 1 to %d bytes, none of them NUL", maxAttributeName-len(attributePrefix)))
		}
		size += len(name) + len(value)
	}
	if len(set) > MaxAttributes || size > maxAttributeBytes {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a file can have %d attributes with %d bytes in all", MaxAttributes, maxAttributeBytes))
	}
	return nil
}

// setAttributes gives an open file attributes. It works as root, so that the mode of the
// file is no hindrance.
func setAttributes(fd int, set map[string]string) error {
	for name, value := range set {
		switch err := unix.Fsetxattr(fd, attributePrefix+name, []byte(value), 0); {
		case errors.Is(err, unix.EOPNOTSUPP):
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the file system there keeps no attributes"))
		case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ERANGE):
			return connect.NewError(connect.CodeInvalidArgument, errors.New("the attributes are more than the file system there keeps with a file"))
		case err != nil:
			return err
		}
	}
	return nil
}
