package image

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed files
var files embed.FS

// GuestEnv is the environment that programs in a guest start with, before what
// the caller of a sandbox sets. It is also in the image's /etc/environment.
func GuestEnv() map[string]string {
	text, err := files.ReadFile("files/environment")
	if err != nil {
		panic(err) // it is part of this program
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[name] = strings.Trim(value, `"`)
		}
	}
	return env
}

// configure turns the bare system into the one that sandboxes start from.
func (b *rootBuild) configure(ctx context.Context) error {
	if err := b.packageVersions(ctx); err != nil {
		return err
	}
	for _, f := range []func(context.Context) error{b.addFonts, b.addUsers, b.addCertificates, b.writeConfig} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return b.clean()
}

func (b *rootBuild) addUsers(ctx context.Context) error {
	var sudoers strings.Builder
	for _, u := range b.def.Users {
		err := program{
			Name: "/usr/sbin/useradd", Root: b.root,
			Args: []string{"--create-home", "--user-group", "--shell", "/bin/bash", "--uid", strconv.Itoa(u.UID), "--", u.Name},
		}.run(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sudoers, "%s ALL=(ALL:ALL) NOPASSWD: ALL\n", u.Name)
	}
	if _, err := os.Stat(filepath.Join(b.root, "etc/sudoers.d")); err != nil || sudoers.Len() == 0 {
		return nil
	}
	return b.write("etc/sudoers.d/users", sudoers.String(), 0o440)
}

// addCertificates installs the host's added authorities, one file each, as
// update-ca-certificates wants them.
func (b *rootBuild) addCertificates(ctx context.Context) error {
	for i, cert := range splitPEM(b.ca) {
		if err := b.write(fmt.Sprintf("usr/local/share/ca-certificates/host-%02d.crt", i+1), string(cert), 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(b.root, "usr/sbin/update-ca-certificates")); err != nil || len(b.ca) == 0 {
		return nil
	}
	return program{Name: "/usr/sbin/update-ca-certificates", Root: b.root}.run(ctx)
}

func (b *rootBuild) writeConfig(context.Context) error {
	apt := oneLineFormat(publicSources(b.sources))
	var options strings.Builder
	for _, o := range forGuest(b.options) {
		options.WriteString(o.String() + "\n")
	}
	conf := []struct {
		path, content string
		mode          fs.FileMode
	}{
		{"etc/apt/sources.list", apt, 0o644},
		{"etc/apt/apt.conf.d/90sandbox", "APT::Install-Recommends \"false\";\nDPkg::Options:: \"--force-unsafe-io\";\n" + options.String(), 0o644},
		{"etc/hostname", "sandbox\n", 0o644},
		{"etc/fstab", "# The agent mounts what a sandbox needs.\n", 0o644},
		// The agent writes these two at each boot and restore.
		{"etc/resolv.conf", "", 0o644},
		{"etc/machine-id", "", 0o444},
	}
	for _, f := range []struct {
		name, path string
		mode       fs.FileMode
	}{
		{"pip.conf", "etc/pip.conf", 0o644},
		{"npmrc", "etc/npmrc", 0o644},
		{"environment", "etc/environment", 0o644},
		{"gitconfig", "etc/gitconfig", 0o644},
		{"hosts", "etc/hosts", 0o644},
		{"policy-rc.d", "usr/sbin/policy-rc.d", 0o755},
	} {
		text, err := files.ReadFile("files/" + f.name)
		if err != nil {
			return err
		}
		conf = append(conf, struct {
			path, content string
			mode          fs.FileMode
		}{f.path, string(text), f.mode})
	}
	for _, c := range conf {
		if err := b.write(c.path, c.content, c.mode); err != nil {
			return err
		}
	}
	// Packages that are installed later may put links into these.
	for i := 1; i <= 8; i++ {
		if err := os.MkdirAll(filepath.Join(b.root, "usr/share/man/man"+strconv.Itoa(i)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what only the build needed, and what must not be the same in
// two machines.
func (b *rootBuild) clean() error {
	for _, pattern := range []string{
		"var/cache/apt/*", "var/lib/apt/lists/*", "var/log/*.log", "var/log/apt/*", "var/cache/debconf/*-old",
		"var/lib/dpkg/*-old", "etc/apt/apt.conf.d/99mmdebstrap", "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
		"etc/apt/sources.list.d/0000debian.list", "var/lib/dbus/machine-id", "etc/ssh/ssh_host_*",
		"run/*", "tmp/*", "tmp/.[!.]*", "etc/*-", "root/.wget-hsts", "var/cache/ldconfig/aux-cache",
	} {
		found, err := filepath.Glob(filepath.Join(b.root, pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	for _, d := range []string{archivesDir + "/partial", "var/lib/apt/lists/partial"} {
		if err := os.MkdirAll(filepath.Join(b.root, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of the root filesystem. It goes through os.Root, so that
// a link in a package cannot lead the write out of it.
func (b *rootBuild) write(path, content string, mode fs.FileMode) error {
	r, err := os.OpenRoot(b.root)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := r.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := r.WriteFile(path, []byte(content), mode); err != nil {
		return fmt.Errorf("write /%s: %w", path, err)
	}
	return r.Chmod(path, mode) // whatever the umask
}
