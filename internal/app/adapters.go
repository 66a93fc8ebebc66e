package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/worker"
)

// machines is the worker as control sees it: it turns records into boot
// requests. When there is a fleet, a remote worker stands here instead.
type machines struct{ w *worker.Worker }

func (m machines) Start(ctx context.Context, r control.StartRequest) (control.Started, error) {
	req, err := requestOf(r)
	if err != nil {
		return control.Started{}, err
	}
	i, err := m.w.Start(ctx, req)
	if err != nil {
		return control.Started{}, err
	}
	return startedOf(i), nil
}

// Claim implements control.Claimer.
func (m machines) Claim(ctx context.Context, r control.StartRequest) (control.Started, bool, error) {
	req, err := requestOf(r)
	if err != nil {
		return control.Started{}, false, err
	}
	i, id, err := m.w.Claim(ctx, req)
	if err != nil || i == nil {
		return control.Started{}, false, err
	}
	started := startedOf(i)
	started.ID = id
	return started, true, nil
}

// requestOf is a boot request for a sandbox. One that is to be claimed has no id yet.
func requestOf(r control.StartRequest) (worker.Request, error) {
	sb := r.Sandbox
	policy, err := policyOf(sb)
	if err != nil {
		return worker.Request{}, err
	}
	req := worker.Request{
		Instance: sb.Instance, Template: sb.Template, TemplateHash: sb.TemplateHash, Shape: sb.Shape, Policy: policy,
		Identity: worker.Identity{Env: sb.Env},
		Snapshot: r.Snapshot, DiskOnly: r.Cold, ColdFallback: r.ColdFallback, KeepSeed: r.Wake || r.KeepSeed,
	}
	if sb.ID != "" {
		req.Identity = worker.IdentityOf(sb.ID, sb.Env)
	}
	return req, nil
}

func startedOf(i *worker.Instance) control.Started {
	return control.Started{
		Instance: i.ID, Isolation: i.Isolation(), TemplateHash: i.Template.Hash, ColdBecause: i.ColdBecause, Steps: i.Steps,
	}
}

func (m machines) Fork(ctx context.Context, parent sandbox.InstanceID, children []control.StartRequest) ([]control.Started, sandbox.SaveInfo, error) {
	requests := make([]worker.Request, len(children))
	for n, c := range children {
		var err error
		if requests[n], err = requestOf(c); err != nil {
			return nil, sandbox.SaveInfo{}, err
		}
	}
	instances, info, err := m.w.Fork(ctx, parent, requests)
	if err != nil {
		return nil, info, err
	}
	started := make([]control.Started, len(instances))
	for n, i := range instances {
		started[n] = startedOf(i)
	}
	return started, info, nil
}

func (m machines) Save(ctx context.Context, id sandbox.InstanceID, r control.SaveRequest) (sandbox.SaveInfo, error) {
	return m.w.Save(ctx, id, worker.SaveRequest{Snapshot: r.Snapshot, DiskOnly: r.Kind == sandbox.SnapshotDisk, Stay: r.Stay})
}

func (m machines) Continue(ctx context.Context, id sandbox.InstanceID) error {
	return m.w.Continue(ctx, id)
}

func (m machines) Rename(ctx context.Context, id sandbox.InstanceID, sb sandbox.Sandbox) error {
	policy, err := policyOf(sb)
	if err != nil {
		return err
	}
	return m.w.Rename(ctx, id, worker.IdentityOf(sb.ID, sb.Env), policy)
}

func (m machines) HasSnapshot(id sandbox.SnapshotID) bool { return m.w.HasSnapshot(id) }

func (m machines) VerifySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return m.w.VerifySnapshot(ctx, id)
}

func (m machines) Snapshots() ([]sandbox.SnapshotID, error) { return m.w.Snapshots() }

func (m machines) RemoveSnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return m.w.RemoveSnapshot(ctx, id)
}

// SnapshotSize implements control.Inventory.
func (m machines) SnapshotSize(id sandbox.SnapshotID) (int64, error) {
	return m.w.SnapshotBytes(id), nil
}

// Instances implements control.Inventory.
func (m machines) Instances() ([]sandbox.InstanceID, error) { return m.w.Instances() }

// policyOf is what the guest of a sandbox may reach.
func policyOf(sb sandbox.Sandbox) (network.Policy, error) {
	p, err := network.ParsePolicy(sb.Egress, sb.EgressPolicy)
	if err != nil {
		return network.Policy{}, fmt.Errorf("read the egress policy of sandbox %s: %w", sb.ID, err)
	}
	return p, nil
}

func (m machines) Guest(ctx context.Context, id sandbox.InstanceID) (control.Guest, error) {
	i, err := m.w.Instance(id)
	if err != nil {
		return nil, err
	}
	return i.Guest(ctx)
}

func (m machines) Stop(ctx context.Context, id sandbox.InstanceID) error { return m.w.Stop(ctx, id) }

func (m machines) Alive(id sandbox.InstanceID) bool { return m.w.Alive(id) }

func (m machines) Console(id sandbox.InstanceID) (string, error) {
	i, err := m.w.Instance(id)
	if err != nil {
		return "", err
	}
	return i.Console(), nil
}

func (m machines) Stats(id sandbox.InstanceID) (sandbox.MachineStats, error) {
	i, err := m.w.Instance(id)
	if err != nil {
		return sandbox.MachineStats{}, err
	}
	return i.Stats()
}

func (m machines) SetEgress(sb sandbox.Sandbox) error {
	p, err := policyOf(sb)
	if err != nil {
		return err
	}
	return m.w.SetPolicy(sb.Instance, p)
}

func (m machines) Denials() <-chan sandbox.EgressDenial { return m.w.Denials() }

func (m machines) Exits() <-chan sandbox.MachineExit { return m.w.Exits() }

// templates is the image builder as control sees it.
type templates struct{ a *App }

func (t templates) Get(_ context.Context, name string) (sandbox.Template, error) {
	built, err := t.a.lookup(name)
	if err != nil {
		return sandbox.Template{}, err
	}
	return t.describe(built)
}

func (t templates) List(context.Context) ([]sandbox.Template, error) {
	all, err := t.a.builder.List()
	if err != nil {
		return nil, err
	}
	var list []sandbox.Template
	for n, built := range all {
		if n > 0 && all[n-1].Name == built.Name {
			continue // an older build that machines may still stand on
		}
		d, err := t.describe(built)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func (t templates) Build(ctx context.Context, name string) (sandbox.Template, error) {
	built, err := t.a.buildTemplate(ctx, name)
	if err != nil {
		return sandbox.Template{}, err
	}
	return t.describe(built)
}

func (t templates) Remove(ctx context.Context, name string) error {
	return t.a.builder.Remove(ctx, name)
}

func (t templates) describe(built image.Artifact) (sandbox.Template, error) {
	d := sandbox.Template{
		Name: built.Name, Hash: built.Hash, SizeBytes: built.DiskBytes(), BuiltAt: built.Manifest.BuiltAt,
	}
	goldens, err := filepath.Glob(filepath.Join(built.Dir, "golden", t.a.driver.Name(), "*"))
	if err != nil {
		return d, fmt.Errorf("look for golden snapshots of %s: %w", built.Name, err)
	}
	for _, g := range goldens {
		// They are named by vCPUs and memory, such as 2x1024.
		vcpus, _, _ := strings.Cut(filepath.Base(g), "x")
		if n, err := strconv.Atoi(vcpus); err == nil {
			d.Goldens = append(d.Goldens, n)
		}
	}
	slices.Sort(d.Goldens)
	d.Goldens = slices.Compact(d.Goldens)
	return d, nil
}

// workerTemplate is a template as the worker sees it.
func (a *App) workerTemplate(name string) (worker.Template, error) {
	built, err := a.lookup(name)
	if err != nil {
		return worker.Template{}, err
	}
	return asWorkerTemplate(built), nil
}

// build is one build of a template, by its hash.
func (a *App) build(name, hash string) (worker.Template, error) {
	if built, err := a.lookup(name); err == nil && built.Hash == hash {
		return asWorkerTemplate(built), nil
	}
	all, err := a.builder.List()
	if err != nil {
		return worker.Template{}, fmt.Errorf("find a build of template %s: %w", name, err)
	}
	for _, b := range all {
		if b.Name == name && b.Hash == hash {
			return asWorkerTemplate(b), nil
		}
	}
	return worker.Template{}, sandbox.Errorf(sandbox.Unavailable, "template_gone",
		"the build of template %s that the sandbox stands on is not on this server any more", name)
}

// found is what a look at a template's builds gave.
type found struct {
	changed time.Time // of the directory of its builds, which builds enter and leave by a rename
	built   image.Artifact
}

// lookup is the builder's, without reading every manifest at every create.
func (a *App) lookup(name string) (image.Artifact, error) {
	info, err := os.Stat(filepath.Join(a.home().Templates(), filepath.Base(name)))
	if err != nil {
		return a.builder.Lookup(name)
	}
	if old, ok := a.found.Load(name); ok && old.(found).changed.Equal(info.ModTime()) {
		return old.(found).built, nil
	}
	built, err := a.builder.Lookup(name)
	if err == nil {
		a.found.Store(name, found{info.ModTime(), built})
	}
	return built, err
}

func asWorkerTemplate(built image.Artifact) worker.Template {
	t := worker.Template{Name: built.Name, Hash: built.Hash, Dir: built.Dir, Image: built.Image(), Env: image.GuestEnv()}
	for _, w := range built.Manifest.Definition.WarmUp {
		t.WarmUp = append(t.WarmUp, worker.Code{Language: w.Language, Code: w.Code})
	}
	return t
}

// poolConfig is what the settings keep ready: the default shape of the server's
// template, and the shapes that are named.
func (a *App) poolConfig() worker.PoolConfig {
	c := worker.PoolConfig{Size: a.cfg.PoolSize, KeepWarm: a.cfg.PoolKeepWarm}
	for _, shape := range append([]sandbox.Shape{sandbox.DefaultShape()}, a.cfg.PoolShapes...) {
		c.Kinds = append(c.Kinds, worker.PoolKind{Template: a.cfg.Template, Shape: shape})
	}
	return c
}

// memInfoMB is a field of the host's memory, in MiB.
func memInfoMB(field string) (int, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("look at the host's memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				return 0, fmt.Errorf("look at the host's memory: %w", err)
			}
			return kb >> 10, nil
		}
	}
	return 0, fmt.Errorf("look at the host's memory: there is no %s", field)
}
