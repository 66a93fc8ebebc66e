package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/snapshot"
)

// overlay is a new top layer for the disk of a machine that runs. It is made while
// the guest runs, and put on at the instant of a snapshot.
type overlay struct {
	m      *Machine
	number int
	path   string
}

// newOverlay makes an overlay known to QEMU, without a backing node yet.
func (m *Machine) newOverlay(ctx context.Context) (*overlay, error) {
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	o := &overlay{m: m, number: rec.nextLayer()}
	o.path = filepath.Join(m.dir, layerName(o.number))
	if err := os.Remove(o.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("new disk layer: %w", err) // of a save that failed
	}
	if err := createOverlay(o.path, int64(rec.DiskMB)<<20); err != nil {
		return nil, err
	}
	if err := o.add(ctx); err != nil {
		return nil, errors.Join(err, os.Remove(o.path))
	}
	return o, nil
}

func (o *overlay) add(ctx context.Context) error {
	var files []*os.File
	for _, mode := range []int{os.O_RDWR, os.O_RDONLY} {
		f, err := os.OpenFile(o.path, mode, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("open new layer: %w", err), closeAll(files))
		}
		files = append(files, f)
	}
	set, err := o.m.addFDs(ctx, layerNode(o.number), files...)
	if err := errors.Join(err, closeAll(files)); err != nil {
		return err
	}
	return o.m.run(ctx, "blockdev-add", blockNode(layerNode(o.number), "qcow2", set, "", true), nil)
}

// insert makes the machine's top layer read-only and puts the overlay on it. The
// machine is paused. On an error nothing is left of the overlay.
func (o *overlay) insert(ctx context.Context) error {
	m := o.m
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	snap := map[string]any{"node": rec.topNode(), "overlay": layerNode(o.number)}
	if err := m.run(ctx, "blockdev-snapshot", snap, nil); err != nil {
		return errors.Join(err, o.drop())
	}
	return m.updateRecord(func(r *record) { r.Layers = withTop(r.Layers, o.number) })
}

// drop removes an overlay that was not put on.
func (o *overlay) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return o.m.dropLayers(ctx, []snapshot.File{{Name: layerName(o.number)}})
}

// dropOverlay removes an overlay that an earlier server made known to QEMU and did not
// put on, if there is one.
func (m *Machine) dropOverlay(ctx context.Context, number int) error {
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := m.run(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Name == layerNode(number) {
			return m.dropLayers(ctx, []snapshot.File{{Name: layerName(number)}})
		}
	}
	return nil
}

// withTop returns the layers with a new top.
func withTop(layers []snapshot.File, number int) []snapshot.File {
	return append(append([]snapshot.File{}, layers...), snapshot.File{Name: layerName(number)})
}

// layerNumber is the number in a layer's name, or -1.
func layerNumber(name string) int {
	digits, ok := strings.CutPrefix(name, layerPrefix)
	digits, ok2 := strings.CutSuffix(digits, layerSuffix)
	n, err := strconv.Atoi(digits)
	if !ok || !ok2 || err != nil || n < 0 {
		return -1
	}
	return n
}

// topNode is the node of the machine's writable layer.
func (r record) topNode() string { return layerNode(layerNumber(r.Layers[len(r.Layers)-1].Name)) }

// nextLayer is the number of the next layer. Numbers only grow: a node's name is
// never used again.
func (r record) nextLayer() int { return layerNumber(r.Layers[len(r.Layers)-1].Name) + 1 }
