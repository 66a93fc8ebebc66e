package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

// endParallel is how many sandboxes are ended at a time.
const endParallel = 8

// EndSandboxes ends every sandbox of a data directory that no server uses, of
// all projects, and returns how many had a machine or were about to have one.
func EndSandboxes(ctx context.Context, cfg config.Server) (n int, err error) {
	cfg.Listen, cfg.NoAuth, cfg.TLS = "127.0.0.1:0", false, config.TLS{} // it serves nobody
	cfg.MinIsolation = ""                                                // and makes nothing
	a, err := New(ctx, cfg, "")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	list, err := a.records.OfNode(ctx, cfg.Node)
	if err != nil {
		return 0, fmt.Errorf("list the sandboxes: %w", err)
	}
	var ended atomic.Int64
	var all errgroup.Group
	all.SetLimit(endParallel)
	for _, sb := range list {
		all.Go(func() error {
			if err := a.control.Delete(ctx, sb.Project, sb.ID); err != nil {
				return fmt.Errorf("end sandbox %s: %w", sb.ID, err)
			}
			if sb.State != sandbox.Failed {
				ended.Add(1)
			}
			return nil
		})
	}
	err = all.Wait()
	return int(ended.Load()), err
}
