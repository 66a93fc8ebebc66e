package bench

import (
	"context"
	"slices"

	"ramet.dev/ramet/internal/progress"
)

// keepFree is the part of the host's memory that density leaves alone: it may
// be somebody's machine.
const keepFree = 0.25

// density makes n sandboxes, fewer when memory gets short, and asks what each of
// them costs the host while all are there and none of them does anything.
func density(ctx context.Context, s *session, n int, r *Result) {
	var ids []string
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		for _, id := range ids {
			if _, err := s.remove(ctx, id); err != nil {
				r.fail(err)
			}
		}
	}()
	for len(ids) < n && ctx.Err() == nil && memoryLeft() {
		id, err := bounded(ctx, func(ctx context.Context) (string, error) {
			id, _, err := s.create(ctx)
			return id, err
		})
		if err != nil {
			if ctx.Err() == nil {
				r.fail(err)
			}
			break
		}
		ids = append(ids, id)
		progress.Report(ctx, progress.Event{Step: r.Name, Fraction: float64(len(ids)) / float64(n)})
	}
	for _, id := range ids {
		m, err := s.c.Metrics(ctx, id)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			r.fail(err)
			continue
		}
		r.Machines = append(r.Machines, MachineMemory{PSSBytes: m.Host.PssBytes, OwnPages: m.Host.OwnPages})
	}
	r.N = len(r.Machines)
	r.Memory = sumUp(r.Machines)
}

func memoryLeft() bool {
	total, free := memoryMB("MemTotal"), memoryMB("MemAvailable")
	return total == 0 || float64(free) > keepFree*float64(total)
}

func sumUp(all []MachineMemory) *Memory {
	if len(all) == 0 {
		return nil
	}
	var pss, own []float64
	for _, m := range all {
		pss = append(pss, float64(m.PSSBytes)/(1<<20))
		own = append(own, float64(m.OwnPages))
	}
	slices.Sort(pss)
	slices.Sort(own)
	return &Memory{
		PSSMBP50: round3(percentile(pss, 50)), PSSMBMax: round3(pss[len(pss)-1]),
		OwnPagesP50: int64(percentile(own, 50)), OwnPagesMax: int64(own[len(own)-1]),
	}
}
