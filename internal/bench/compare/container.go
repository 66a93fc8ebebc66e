package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/sandbox"
)

// container runs code in namespaces of the host's kernel, from the same root
// filesystem that sandboxes have.
type container struct {
	home config.Home
	cfg  bench.FloorConfig
}

// open unpacks the template's root filesystem on the disk that sandboxes use. A
// server that starts after a crash removes what is left there.
func (c container) open(ctx context.Context) (_ bench.Probe, err error) {
	crun, err := exec.LookPath("crun")
	switch {
	case err != nil:
		return bench.Probe{}, unavailable(nil, "there is no crun; install it (Debian: crun)")
	case os.Geteuid() != 0:
		return bench.Probe{}, unavailable(nil, "it needs root")
	case c.home == "":
		return bench.Probe{}, unavailable(nil, "it needs the data directory of a server on this host (RAMET_HOME)")
	}
	tarball, err := c.rootTar()
	if err != nil {
		return bench.Probe{}, err
	}
	dir := filepath.Join(c.home.Instances(), string(sandbox.NewInstanceID()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return bench.Probe{}, fmt.Errorf("make a place for a container: %w", err)
	}
	var undo cleaners
	undo.push(func() error { return os.RemoveAll(dir) })
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.run())
		}
	}()
	if err := unpack(ctx, tarball, filepath.Join(dir, "rootfs")); err != nil {
		return bench.Probe{}, err
	}
	spec, err := json.Marshal(ociSpec())
	if err != nil {
		return bench.Probe{}, fmt.Errorf("describe a container: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600); err != nil {
		return bench.Probe{}, fmt.Errorf("describe a container: %w", err)
	}
	a, err := newApart()
	if err != nil {
		return bench.Probe{}, unavailable(err, "a container cannot be made here")
	}
	undo.push(a.close)
	b := &bundle{crun: crun, dir: dir, run: a.run}
	return bench.Probe{Once: b.once, Close: func(context.Context) error { return undo.run() }}, nil
}

func (c container) rootTar() (string, error) {
	builder, err := image.New(image.Config{TemplatesDir: c.home.Templates()})
	if err != nil {
		return "", err
	}
	all, err := builder.List()
	if err != nil {
		return "", fmt.Errorf("look for the template: %w", err)
	}
	for _, built := range all {
		if built.Name == c.cfg.Template && built.Hash == c.cfg.TemplateHash {
			return built.Image().RootTar, nil
		}
	}
	return "", unavailable(nil, "the server's template %s is not in %s", c.cfg.Template, c.home.Templates())
}

// unpack unpacks a tar that this host has built itself.
func unpack(ctx context.Context, tarball, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("unpack the root filesystem: %w", err)
	}
	f, err := os.Open(tarball)
	if err != nil {
		return fmt.Errorf("unpack the root filesystem: %w", err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack the root filesystem: %w", err)
	}
	defer z.Close()
	cmd := exec.CommandContext(ctx, "tar", "--numeric-owner", "-xpf", "-", "-C", dir)
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = z, said, said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("unpack the root filesystem: %w: %s", err, said)
	}
	return nil
}

// bundle is a container's root filesystem and description.
type bundle struct {
	crun, dir string
	run       func(*exec.Cmd) error
	runs      int
}

// once runs a container from nothing until it is gone.
func (b *bundle) once(ctx context.Context) (bench.Sample, error) {
	b.runs++
	id := "ramet-bench-" + strconv.Itoa(b.runs)
	global := []string{"--root", filepath.Join(b.dir, "state"), "--cgroup-manager=disabled"}
	cmd := exec.CommandContext(ctx, b.crun, append(global, "run", "--bundle", b.dir, id)...)
	out, said := &tail{}, &tail{}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.WaitDelay = time.Second
	begin := time.Now()
	err := b.run(cmd)
	took := time.Since(begin)
	if err == nil && out.all() != "1\n" {
		err = fmt.Errorf("it printed %.100q", out.all())
	}
	if err != nil {
		err = fmt.Errorf("run a container: %w: %s", err, said)
		if ctx.Err() != nil {
			// crun was killed; its container may still be there.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			err = errors.Join(err, quietly(ctx, b.crun, append(global, "delete", "--force", id)...))
		}
		return bench.Sample{}, err
	}
	return bench.Sample{Took: took}, nil
}

type object map[string]any

// ociSpec is a container that cannot write to its root filesystem and has no
// rights and no network.
func ociSpec() object {
	mount := func(where, kind string, options ...string) object {
		return object{"destination": where, "type": kind, "source": kind, "options": append([]string{"nosuid"}, options...)}
	}
	var namespaces []object
	for _, kind := range []string{"pid", "mount", "ipc", "uts", "network"} {
		namespaces = append(namespaces, object{"type": kind})
	}
	return object{
		"ociVersion": "1.0.2",
		"process": object{
			"args": []string{"python3", "-c", "print(1)"}, "cwd": "/", "user": object{"uid": 0, "gid": 0}, "noNewPrivileges": true,
			"env": []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, "capabilities": object{},
		},
		"root":     object{"path": "rootfs", "readonly": true},
		"hostname": "ramet-bench",
		"mounts": []object{
			mount("/proc", "proc", "noexec", "nodev"), mount("/dev", "tmpfs", "mode=755"), mount("/tmp", "tmpfs", "nodev"),
		},
		"linux": object{"namespaces": namespaces},
	}
}
