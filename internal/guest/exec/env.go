package exec

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// baseEnv is what every process of a user starts with. TERM is absent: these
// processes have no terminal.
func baseEnv(u *User) map[string]string {
	return map[string]string{
		"PATH":    defaultPath,
		"HOME":    u.Home,
		"USER":    u.Name,
		"LOGNAME": u.Name,
		"SHELL":   u.Shell,
		"LANG":    "C.UTF-8",
	}
}

// environ merges environments, later ones over earlier ones, into the form
// that execve takes, sorted.
func environ(sets ...map[string]string) []string {
	all := make(map[string]string)
	for _, set := range sets {
		maps.Copy(all, set)
	}
	out := make([]string, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return out
}

// checkEnv refuses what execve cannot carry.
func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return invalid("environment variable name %q is not valid", k)
		}
		if strings.ContainsRune(v, 0) {
			return invalid("environment variable %s contains a NUL byte", k)
		}
	}
	return nil
}

func lookupEnv(env []string, key string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v
		}
	}
	return ""
}

// findProgram resolves a program's name as a shell does: with a slash it is a
// path, relative to cwd; else the first executable of that name in PATH. The
// error is ENOENT, or EACCES when there is one that cannot be executed.
func findProgram(name, path, cwd string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		return name, executable(name)
	}
	var result error = unix.ENOENT
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir) // also the empty entry, which is cwd
		}
		file := filepath.Join(dir, name)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if err == unix.EACCES {
			result = err
		}
	}
	return "", result
}

// executable says whether a file could be executed by somebody. Whether the
// user may, execve decides.
func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return unix.ENOENT
	case info.IsDir(), info.Mode()&0o111 == 0:
		return unix.EACCES
	}
	return nil
}
