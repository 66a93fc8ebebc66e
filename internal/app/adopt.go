package app

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
	"ramet.dev/ramet/internal/worker"
)

// adopt lets the worker take over the machines that an earlier server left
// running, before control looks which sandboxes have one. It asks the records
// for each instance that is on the host, whatever node they name: a machine is
// never ended because the node was given another name.
func (a *App) adopt(ctx context.Context, records *store.Store) error {
	begin := time.Now()
	left, err := a.worker.Left()
	if err != nil || len(left) == 0 {
		return err
	}
	built, err := a.builder.List()
	if err != nil {
		return fmt.Errorf("find the templates of running sandboxes: %w", err)
	}
	var owned []worker.Adoptable
	for _, id := range left {
		sb, err := records.OfInstance(ctx, id)
		if sandbox.KindOf(err) == sandbox.NotFound {
			continue
		}
		if err != nil {
			return fmt.Errorf("find the sandbox of instance %s: %w", id, err)
		}
		if sb.State.HasMachine() {
			policy, err := policyOf(sb)
			if err != nil {
				// Of another version, perhaps. Nobody's machine is ended for it, but nothing leaves it.
				a.log.Error("a sandbox's network is closed, since its policy cannot be read", "sandbox", sb.ID, "err", err)
			}
			owned = append(owned, worker.Adoptable{
				Instance: id, Template: templateOf(sb, built), Shape: sb.Shape, Policy: policy,
			})
		}
	}
	if err := a.worker.Adopt(ctx, owned); err != nil {
		return err
	}
	a.log.Info("looked after the machines of an earlier server",
		"found", len(left), "adopted", a.worker.Count(), "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// templateOf is the build that a sandbox was made from. A machine runs without
// it, but cannot be saved.
func templateOf(sb sandbox.Sandbox, built []image.Artifact) worker.Template {
	for _, b := range built {
		if b.Name == sb.Template && b.Hash == sb.TemplateHash {
			return asWorkerTemplate(b)
		}
	}
	return worker.Template{Name: sb.Template, Hash: sb.TemplateHash}
}
