package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/vmm"
)

// The files of an artifact.
const (
	tarFile      = "rootfs.tar.zst"
	ext4File     = "rootfs.ext4"
	vmlinuzFile  = "vmlinuz"
	modulesFile  = "modules.cpio"
	initrdFile   = "initrd.img"
	manifestFile = "manifest.json"
)

// rootFiles are those that depend on the root key alone.
var rootFiles = []string{tarFile, ext4File, vmlinuzFile, modulesFile}

// manifestFormat is the version of Manifest.
const manifestFormat = 1

// Manifest describes a build. It is written last.
type Manifest struct {
	Format       int       `json:"format"`
	Name         string    `json:"name"`
	Keys         keys      `json:"keys"`
	ShapeVersion int       `json:"shape_version"`
	Arch         string    `json:"arch"`
	BuiltAt      time.Time `json:"built_at"`
	// Content is the hash over the files: two builds of the same inputs on
	// different days can differ.
	Content    string            `json:"content"`
	Definition Definition        `json:"definition"`
	Sources    string            `json:"sources"`
	AgentHash  string            `json:"agent_hash"`
	CAHash     string            `json:"ca_hash,omitempty"`
	Kernel     string            `json:"kernel"`   // release, as uname -r says in the guest
	Modules    []string          `json:"modules"`  // of the initrd, in load order
	Packages   map[string]string `json:"packages"` // name to version
	Files      map[string]File   `json:"files"`
	// RootSeconds is how long the root filesystem took, also when it was taken over.
	RootSeconds float64 `json:"root_seconds"`
}

// File describes one file of a build.
type File struct {
	Bytes int64 `json:"bytes"`
	// DiskBytes is what it takes up on the disk; a sparse file takes less.
	DiskBytes int64 `json:"disk_bytes"`
	// SHA256 is empty for rootfs.ext4, which is derived from the tar and large.
	SHA256 string `json:"sha256,omitempty"`
}

// Artifact is a complete build.
type Artifact struct {
	Name string
	// Hash is the hash of the inputs; the directory is named by it.
	Hash     string
	Dir      string // absolute
	Manifest Manifest
}

// Image returns what a driver needs to start a machine. Its hash is that of the content.
func (a Artifact) Image() vmm.Image {
	return vmm.Image{
		Hash:     a.Manifest.Content,
		Kernel:   filepath.Join(a.Dir, vmlinuzFile),
		Initrd:   filepath.Join(a.Dir, initrdFile),
		RootTar:  filepath.Join(a.Dir, tarFile),
		RootExt4: filepath.Join(a.Dir, ext4File),
	}
}

// DiskBytes is what the build takes up on the disk.
func (a Artifact) DiskBytes() int64 {
	var sum int64
	for _, f := range a.Manifest.Files {
		sum += f.DiskBytes
	}
	return sum
}

// errIncomplete is wrapped by load when a directory holds no complete build.
var errIncomplete = errors.New("not a complete build")

// load reads an artifact's directory and checks that its files are all there
// in their full size.
func load(name, dir string) (Artifact, error) {
	a := Artifact{Name: name, Hash: filepath.Base(dir), Dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("%s: %w", dir, errIncomplete)
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a.Manifest); err != nil || a.Manifest.Format != manifestFormat || a.Manifest.Keys.Build != a.Hash {
		return a, fmt.Errorf("%s: bad manifest: %w", dir, errIncomplete)
	}
	for _, f := range append(slices.Clone(rootFiles), initrdFile) {
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil || info.Size() != a.Manifest.Files[f].Bytes {
			return a, fmt.Errorf("%s: %s is missing or truncated: %w", dir, f, errIncomplete)
		}
	}
	return a, nil
}

// describe fills in sizes and hashes of the files in dir. Hashes that base has are taken over.
func describe(dir string, base map[string]File) (map[string]File, error) {
	out := map[string]File{}
	for _, name := range append(slices.Clone(rootFiles), initrdFile) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		f := File{Bytes: info.Size(), SHA256: base[name].SHA256}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			f.DiskBytes = st.Blocks * 512
		}
		if f.SHA256 == "" && name != ext4File {
			if f.SHA256, err = hashFile(path); err != nil {
				return nil, err
			}
		}
		out[name] = f
	}
	return out, nil
}

// contentHash is the hash over the files' hashes.
func contentHash(files map[string]File) (string, error) {
	sums := map[string]string{}
	for name, f := range files {
		sums[name] = f.SHA256
	}
	return hashOf(sums)
}
