package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm/qemu/qmp"
)

const (
	// flattenAt is how many layers a disk may have, apart from those of the golden
	// snapshot, before Flatten does something.
	flattenAt = 6
	// tooManyLayers is where a save flattens first: each layer costs at every start and read.
	tooManyLayers = 40
	flattenJob    = "flatten"
	// flattenEnd bounds ending the job.
	flattenEnd = 30 * time.Second
)

// Flatten implements vmm.Machine. QEMU copies what is in layers of the machine's own into
// its top layer, while the guest runs; then they are taken out of the chain. Layers are
// never changed, because others may stand on them.
//
// Only the upper layers that are small beside the one below them are merged, so that
// a byte is copied a few times at most, however often the machine is forked.
func (m *Machine) Flatten(ctx context.Context) error {
	ctx, end, err := m.beginFlatten(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := m.flatten(ctx, flattenAt); err != nil {
		return fmt.Errorf("flatten disk: %w", err)
	}
	return nil
}

var (
	errSaving     = errors.New("the machine is being saved")
	errFlattening = errors.New("the disk is being flattened already")
)

// beginFlatten makes a flattening the one that stopFlatten ends.
func (m *Machine) beginFlatten(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flattening != nil {
		cancel(nil)
		return nil, nil, errFlattening
	}
	f := &flattening{cancel: cancel, done: make(chan struct{})}
	m.flattening = f
	return ctx, func() {
		cancel(nil)
		m.mu.Lock()
		m.flattening = nil
		m.mu.Unlock()
		close(f.done)
	}, nil
}

// flattening is one that is under way, or a save, which keeps others away.
type flattening struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// stopFlatten ends a flattening and waits until it is over. None begins until done is called.
func (m *Machine) stopFlatten(ctx context.Context) (done func(), err error) {
	for {
		_, done, err := m.beginFlatten(ctx)
		if err == nil {
			return done, nil
		}
		m.mu.Lock()
		f := m.flattening
		m.mu.Unlock()
		if f == nil {
			continue
		}
		f.cancel(errSaving)
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the disk's flattening to end: %w", context.Cause(ctx))
		}
	}
}

func (m *Machine) flatten(ctx context.Context, limit int) error {
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	sizes, err := layerSizes(m.dir, rec.Layers)
	if err != nil {
		return err
	}
	base := flattenBase(sizes, rec.SharedLayers, limit)
	if base < 0 {
		return nil
	}
	node := imageNode
	if base > 0 {
		node = layerNode(layerNumber(rec.Layers[base-1].Name))
	}
	if err := m.stream(ctx, rec.topNode(), node); err != nil {
		return err
	}
	dropped := slices.Clone(rec.Layers[base : len(rec.Layers)-1])
	if err := m.updateRecord(func(r *record) { r.Layers = slices.Delete(slices.Clone(r.Layers), base, len(r.Layers)-1) }); err != nil {
		return err
	}
	return m.dropLayers(context.WithoutCancel(ctx), dropped)
}

func layerSizes(dir string, layers []snapshot.File) ([]int64, error) {
	sizes := make([]int64, len(layers))
	for i, l := range layers {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, l.Name), &st); err != nil {
			return nil, fmt.Errorf("look at disk layer %s: %w", l.Name, err)
		}
		sizes[i] = st.Blocks * 512
	}
	return sizes, nil
}

// flattenBase returns how many of the lowest layers stay as they are when all above them
// are merged into the top, or -1 when nothing is to be done. The lowest shared layers
// always stay. A layer stays, with all below it, when it is at least twice
// as large as everything above it together.
func flattenBase(sizes []int64, shared, limit int) int {
	if len(sizes)-shared <= limit {
		return -1
	}
	base, above := shared, int64(0)
	for i := len(sizes) - 1; i >= shared; i-- {
		if i < len(sizes)-limit/2 && sizes[i] >= 2*above {
			base = i + 1
			break
		}
		above += sizes[i]
	}
	if len(sizes)-base < 3 { // the top and one more: not worth it
		return -1
	}
	return base
}

// stream lets QEMU copy what is between base and top into top.
func (m *Machine) stream(ctx context.Context, top, base string) error {
	events := m.qmp.Subscribe("BLOCK_JOB_COMPLETED", "BLOCK_JOB_CANCELLED")
	defer events.Close()
	// Without a name for the base QEMU writes one into the top layer that describes the whole chain below it,
	// and refuses one of more than 1023 bytes. Nobody reads it: a start names each layer.
	args := map[string]any{"job-id": flattenJob, "device": top, "base-node": base, "backing-file": base}
	if err := m.begin(ctx, "block-stream", args); err != nil {
		return err
	}
	err := m.awaitJob(ctx, events)
	if err == nil || ctx.Err() == nil {
		return err
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), flattenEnd)
	defer cancel()
	// It may just have completed: then there is nothing to cancel, and the event tells.
	cerr := m.run(wait, "block-job-cancel", map[string]any{"device": flattenJob}, nil)
	switch jerr := m.awaitJob(wait, events); {
	case jerr == nil:
		return nil // it was faster
	case errors.Is(jerr, errJobCancelled):
		return context.Cause(ctx)
	default:
		return errors.Join(cerr, jerr)
	}
}

// begin runs a command that begins a job. It is not given up half-way: nobody would know whether
// there is a job that has to be ended.
func (m *Machine) begin(ctx context.Context, command string, args any) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flattenEnd)
	defer cancel()
	return m.run(ctx, command, args, nil)
}

var errJobCancelled = errors.New("the job was cancelled")

func (m *Machine) awaitJob(ctx context.Context, events *qmp.Subscription) error {
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return m.explain(ctx, err)
		}
		var d struct {
			Device string `json:"device"`
			Error  string `json:"error"`
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return fmt.Errorf("block job event: %w", err)
		}
		switch {
		case d.Device != flattenJob:
		case e.Name == "BLOCK_JOB_CANCELLED":
			return errJobCancelled
		case d.Error != "":
			return fmt.Errorf("copy disk layers: %s", d.Error)
		default:
			return nil
		}
	}
}

// dropLayers closes layers that are not in the chain any more, and removes their files.
func (m *Machine) dropLayers(ctx context.Context, layers []snapshot.File) error {
	ctx, cancel := context.WithTimeout(ctx, flattenEnd)
	defer cancel()
	sets, err := m.fdSets(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range slices.Backward(layers) { // a node goes after the one that stood on it
		node := layerNode(layerNumber(l.Name))
		errs = append(errs, m.run(ctx, "blockdev-del", map[string]any{"node-name": node}, nil))
		for _, s := range sets {
			if s.name == node {
				errs = append(errs, m.run(ctx, "remove-fd", map[string]any{"fdset-id": s.id}, nil))
			}
		}
		errs = append(errs, os.Remove(filepath.Join(m.dir, l.Name)))
	}
	return errors.Join(errs...)
}

// fdSet is an add-fd set of QEMU.
type fdSet struct {
	id   int
	name string
}

// fdSets lists QEMU's add-fd sets.
func (m *Machine) fdSets(ctx context.Context) ([]fdSet, error) {
	var out []struct {
		ID  int `json:"fdset-id"`
		FDs []struct {
			Opaque string `json:"opaque"`
		} `json:"fds"`
	}
	if err := m.run(ctx, "query-fdsets", nil, &out); err != nil {
		return nil, err
	}
	sets := make([]fdSet, len(out))
	for i, s := range out {
		sets[i].id = s.ID
		for _, f := range s.FDs {
			if f.Opaque != "" {
				sets[i].name = f.Opaque
			}
		}
	}
	return sets, nil
}

// endJobs ends what an earlier server had begun.
func (m *Machine) endJobs(ctx context.Context) error {
	events := m.qmp.Subscribe("BLOCK_JOB_COMPLETED", "BLOCK_JOB_CANCELLED")
	defer events.Close()
	var jobs []struct {
		Device string `json:"device"`
	}
	if err := m.run(ctx, "query-block-jobs", nil, &jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Device != flattenJob {
			continue
		}
		if err := m.run(ctx, "block-job-cancel", map[string]any{"device": j.Device}, nil); err != nil {
			return err
		}
		if err := m.awaitJob(ctx, events); err != nil && !errors.Is(err, errJobCancelled) {
			return err
		}
	}
	return nil
}
