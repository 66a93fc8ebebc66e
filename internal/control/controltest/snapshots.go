package controltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// ErrKilled is what a step returns in whose middle the server is killed: nothing is
// cleaned up after it.
var ErrKilled = errors.New("the server was killed")

// manifest makes a fake snapshot whole.
type manifest struct {
	Kind   sandbox.SnapshotKind
	Memory map[string]string
}

func (m *Machines) step(name string) error {
	if m.OnStep == nil {
		return nil
	}
	return m.OnStep(name)
}

func (m *Machines) snapshotsDir() string { return filepath.Join(filepath.Dir(m.dir), "snapshots") }

func (m *Machines) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(m.snapshotsDir(), string(id))
}

func (m *Machines) pause(v *machine, on bool) {
	m.mu.Lock()
	v.paused = on
	m.mu.Unlock()
	if on {
		v.port.pause()
	} else {
		v.port.resume()
	}
}

// Paused says whether a machine stands still.
func (m *Machines) Paused(id sandbox.InstanceID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.machines[id]
	return v != nil && v.paused
}

// Remember puts something into a machine's memory, which a disk alone does not keep.
func (m *Machines) Remember(id sandbox.InstanceID, key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.machines[id]; v != nil {
		v.memory[key] = value
	}
}

// Recall returns what is in a machine's memory.
func (m *Machines) Recall(id sandbox.InstanceID, key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.machines[id]; v != nil {
		return v.memory[key]
	}
	return ""
}

// Name returns whose identity a machine's guest has.
func (m *Machines) Name(id sandbox.InstanceID) sandbox.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.machines[id]; v != nil {
		return v.name
	}
	return ""
}

// Fork copies the files and the memory of a machine.
func (m *Machines) Fork(ctx context.Context, parent sandbox.InstanceID, children []control.StartRequest) (started []control.Started, info sandbox.SaveInfo, err error) {
	v, err := m.get(parent)
	if err != nil {
		return nil, info, err
	}
	killed := false
	m.pause(v, true)
	defer func() {
		if !killed {
			m.pause(v, false)
		}
	}()
	defer func() {
		killed = errors.Is(err, ErrKilled)
		if err == nil || killed {
			return
		}
		for _, r := range children { // all or none
			err = errors.Join(err, m.end(r.Sandbox.Instance))
		}
		started = nil
	}()
	if err := m.step("fork.pause"); err != nil {
		return nil, info, err
	}
	for _, r := range children {
		if err := errors.Join(m.step("fork.child"), context.Cause(ctx)); err != nil {
			return nil, info, err
		}
		if m.OnStart != nil {
			if err := m.OnStart(ctx, r); err != nil {
				return nil, info, err
			}
		}
		root := filepath.Join(m.dir, string(r.Sandbox.Instance))
		if err := copyTree(v.root, root); err != nil {
			return nil, info, err
		}
		if _, err := m.boot(ctx, r.Sandbox.Instance, control.StartRequest{Sandbox: r.Sandbox}); err != nil {
			return nil, info, err
		}
		m.mu.Lock()
		m.machines[r.Sandbox.Instance].memory = maps.Clone(v.memory)
		m.mu.Unlock()
		started = append(started, control.Started{Instance: r.Sandbox.Instance, Isolation: sandbox.IsolationEmulated})
	}
	if err := m.step("fork.done"); err != nil {
		return nil, info, err
	}
	return started, sandbox.SaveInfo{Paused: 12 * time.Millisecond, DirtyBytes: 1 << 20, Steps: []sandbox.StepTime{{Name: "fork", Took: time.Millisecond}}}, nil
}

// Save copies the files and the memory of a machine into a folder.
func (m *Machines) Save(ctx context.Context, id sandbox.InstanceID, r control.SaveRequest) (info sandbox.SaveInfo, err error) {
	v, err := m.get(id)
	if err != nil {
		return info, err
	}
	dir := m.snapshotDir(r.Snapshot)
	m.pause(v, true)
	defer func() {
		if errors.Is(err, ErrKilled) || err == nil && r.Stay {
			return
		}
		m.pause(v, false)
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return info, err
	}
	if err := errors.Join(m.step("save.half"), context.Cause(ctx)); err != nil {
		return info, err
	}
	if err := copyTree(v.root, filepath.Join(dir, "disk")); err != nil {
		return info, err
	}
	whole := manifest{Kind: r.Kind}
	if r.Kind == sandbox.SnapshotFull {
		m.mu.Lock()
		whole.Memory = maps.Clone(v.memory)
		m.mu.Unlock()
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return info, err
	}
	if err := m.step("save.whole"); err != nil {
		return info, err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest"), b, 0o600); err != nil {
		return info, err
	}
	if err := errors.Join(m.step("save.end"), context.Cause(ctx)); err != nil {
		return info, err
	}
	size, err := m.SnapshotSize(r.Snapshot)
	return sandbox.SaveInfo{SizeBytes: size, DirtyBytes: 1 << 20, Steps: []sandbox.StepTime{{Name: "save", Took: time.Millisecond}}}, err
}

// Continue ends the pause of a machine.
func (m *Machines) Continue(_ context.Context, id sandbox.InstanceID) error {
	if err := m.step("continue"); err != nil {
		return err
	}
	v, err := m.get(id)
	if err != nil {
		return err
	}
	m.pause(v, false)
	return nil
}

// Rename changes whose identity a guest has.
func (m *Machines) Rename(_ context.Context, id sandbox.InstanceID, sb sandbox.Sandbox) error {
	if err := m.step("rename"); err != nil {
		return err
	}
	v, err := m.get(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v.name, v.reach = sb.ID, sb
	return nil
}

// HasSnapshot says whether a snapshot has its manifest.
func (m *Machines) HasSnapshot(id sandbox.SnapshotID) bool {
	_, err := os.Stat(filepath.Join(m.snapshotDir(id), "manifest"))
	return err == nil
}

func (m *Machines) manifest(id sandbox.SnapshotID) (manifest, error) {
	var v manifest
	b, err := os.ReadFile(filepath.Join(m.snapshotDir(id), "manifest"))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, &sandbox.Error{Kind: sandbox.Unavailable, Code: "snapshot_damaged", Message: "the snapshot is damaged", Err: err}
	}
	return v, nil
}

// VerifySnapshot reads the manifest.
func (m *Machines) VerifySnapshot(_ context.Context, id sandbox.SnapshotID) error {
	if err := m.step("verify"); err != nil {
		return err
	}
	_, err := m.manifest(id)
	return err
}

// Peek returns what is in the memory that a snapshot keeps.
func (m *Machines) Peek(id sandbox.SnapshotID, key string) string {
	v, err := m.manifest(id)
	if err != nil {
		return ""
	}
	return v.Memory[key]
}

// Damage makes a snapshot one that cannot be used.
func (m *Machines) Damage(id sandbox.SnapshotID) error {
	return os.WriteFile(filepath.Join(m.snapshotDir(id), "manifest"), []byte("torn"), 0o600)
}

// Snapshots lists the folders.
func (m *Machines) Snapshots() ([]sandbox.SnapshotID, error) {
	names, err := folders(m.snapshotsDir())
	list := make([]sandbox.SnapshotID, len(names))
	for i, n := range names {
		list[i] = sandbox.SnapshotID(n)
	}
	return list, err
}

// Instances lists the folders of machines.
func (m *Machines) Instances() ([]sandbox.InstanceID, error) {
	names, err := folders(m.dir)
	if m.OnInventory != nil {
		m.OnInventory()
	}
	list := make([]sandbox.InstanceID, len(names))
	for i, n := range names {
		list[i] = sandbox.InstanceID(n)
	}
	return list, err
}

func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// RemoveSnapshot removes the folder.
func (m *Machines) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	if err := m.step("remove"); err != nil {
		return err
	}
	return os.RemoveAll(m.snapshotDir(id))
}

// SnapshotSize sums up the files.
func (m *Machines) SnapshotSize(id sandbox.SnapshotID) (int64, error) {
	size := int64(0)
	err := filepath.WalkDir(m.snapshotDir(id), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// unpack puts the files of a snapshot below root and returns its memory, or why there is none.
func (m *Machines) unpack(id sandbox.SnapshotID, root string, fallback bool) (memory map[string]string, cold string, err error) {
	v, err := m.manifest(id)
	if err != nil {
		return nil, "", err
	}
	if err := copyTree(filepath.Join(m.snapshotDir(id), "disk"), root); err != nil {
		return nil, "", err
	}
	if m.OnCold != nil && v.Kind == sandbox.SnapshotFull {
		cold = m.OnCold(id)
	}
	if cold != "" && !fallback {
		return nil, "", sandbox.Errorf(sandbox.Unsupported, "snapshot_unfit", "the snapshot does not fit this host: %s", cold)
	}
	if cold != "" || v.Memory == nil {
		return map[string]string{}, cold, nil
	}
	return v.Memory, "", nil
}

// end ends a machine, if there is one, and removes its folder.
func (m *Machines) end(id sandbox.InstanceID) error {
	m.mu.Lock()
	v, ok := m.machines[id]
	delete(m.machines, id)
	m.mu.Unlock()
	if !ok {
		return os.RemoveAll(filepath.Join(m.dir, string(id)))
	}
	return v.end()
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a file that a fake machine can keep", p)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, info.Mode().Perm())
	})
}

var (
	_ control.Machines  = (*Machines)(nil)
	_ control.Inventory = (*Machines)(nil)
)
