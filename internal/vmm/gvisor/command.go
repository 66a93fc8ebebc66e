package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxComplaint bounds what of runsc's log goes into an error, in bytes.
const maxComplaint = 2 << 10

// flags are runsc's, for every command on the sandbox in dir. A sandbox keeps those of its
// start; what a snapshot needs to be the same is in the driver's version and in the spec.
func flags(dir string) []string {
	return []string{
		"--root=" + filepath.Join(dir, stateDir),
		"--log=" + filepath.Join(dir, logName),
		"--platform=systrap",
		"--network=sandbox",
		"--net-raw=true", // ping; the gateway checks every packet
		// Nothing of the host's filesystems, and no process that could reach them.
		"--directfs=false",
		"--host-uds=none",
		"--host-fifo=none",
		"--overlay2=root:dir=" + filepath.Join(dir, storeDir),
		"--allow-suid=true",     // sudo, in the sandbox's own kernel
		"--ignore-cgroups=true", // the driver does that
		"--in-sandbox-cgroup=v2",
		"--host-settings=ignore",
		"--watchdog-action=log",
	}
}

// runsc runs a command on the sandbox in dir. files are its descriptors from firstFile on, stdio the
// first three, or nil.
func (d *Driver) runsc(ctx context.Context, dir string, stdio []*os.File, files []*os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	logPath := filepath.Join(dir, logName)
	if err := os.WriteFile(logPath, nil, 0o600); err != nil {
		return fmt.Errorf("run runsc: %w", err)
	}
	cmd := exec.CommandContext(ctx, d.binary, append(flags(dir), args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = dir
	if stdio != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	}
	cmd.ExtraFiles = files
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if said := lastLines(logPath); said != "" {
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, said)
	}
	return fmt.Errorf("runsc %s: %w", args[0], err)
}

// lastLines returns the warnings and errors at the end of runsc's log, on one line.
func lastLines(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 64 << 10
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, end-tail), tail))
	if err != nil {
		return ""
	}
	if end > tail { // it begins within a line
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	var said []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "I") && !strings.HasPrefix(line, "D") {
			said = append(said, strings.Join(strings.Fields(line), " "))
		}
	}
	all := strings.Join(said, "; ")
	return all[max(0, len(all)-maxComplaint):]
}

// firstFile is the first descriptor of a runsc's files.
const firstFile = 3

// linkFiles makes a directory in which names lead to the files that a runsc gets as descriptors
// from first on: its commands take paths, and the files may have none any more.
func linkFiles(dir string, first int, names ...string) (string, error) {
	links := filepath.Join(dir, linksDir)
	err := errors.Join(os.RemoveAll(links), os.Mkdir(links, 0o700))
	for i, name := range names {
		if err == nil {
			err = os.Symlink(fmt.Sprintf("/proc/self/fd/%d", first+i), filepath.Join(links, name))
		}
	}
	if err != nil {
		return "", fmt.Errorf("link snapshot files: %w", err)
	}
	return links, nil
}
