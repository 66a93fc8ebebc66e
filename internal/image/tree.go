package image

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// removeTree deletes a directory in which a root filesystem was built. A
// process that still runs inside is ended and what is still mounted there is
// unmounted first, because deleting through a mount of /dev or /proc would delete the host's.
func removeTree(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	killInside(abs)
	mounts, err := mountsBelow(abs)
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return os.RemoveAll(abs)
}

// killInside ends processes whose root directory is dir or below it. Only
// package scripts of a build can be such.
func killInside(dir string) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		// The descriptor pins the process: the pid cannot become a stranger's.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		root, err := os.Readlink(filepath.Join("/proc", p.Name(), "root"))
		if err == nil && (root == dir || strings.HasPrefix(root, dir+"/")) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}

// mountsBelow lists mount points at or below dir, the deepest first.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			found = append(found, point)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	return found, sc.Err()
}

// unescapeMount undoes the octal escapes of mountinfo, see proc(5).
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// checkFree fails when the filesystem of dir has less than needMB MB free.
func checkFree(dir string, needMB int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	freeMB := int64(st.Bavail) * st.Bsize >> 20
	if freeMB < needMB {
		return sandbox.Errorf(sandbox.Unavailable, "disk_full",
			"building the template needs %d MB free in %s, but there are only %d MB", needMB, dir, freeMB)
	}
	return nil
}
