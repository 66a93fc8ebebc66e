package httpapi

import (
	"net/http"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// GetCapacity says what is kept ready, and how creates were served.
func (s *Server) GetCapacity(w http.ResponseWriter, r *http.Request) {
	var c sandbox.Capacity
	if s.cfg.Capacity != nil {
		c = s.cfg.Capacity()
	}
	out := rametv1.Capacity{Machines: c.Machines, Waiting: c.Waiting, WaitingSize: c.WaitingSize, Unpooled: int64(c.Unpooled), Pools: []rametv1.Pool{}}
	var all sandbox.Pool
	for _, p := range c.Pools {
		all = all.Plus(p)
		n := poolCounters(p)
		out.Pools = append(out.Pools, rametv1.Pool{
			Template: p.Template, Vcpus: p.Shape.VCPUs, MemoryMb: p.Shape.MemoryMB, DiskMb: p.Shape.DiskMB,
			Size: n.Size, Ready: n.Ready, Warming: n.Warming, Hits: n.Hits, Misses: n.Misses, HitRate: n.HitRate,
			Discarded: n.Discarded, HandOffMsMean: n.HandOffMsMean, OnDemandBootMsMean: n.OnDemandBootMsMean,
			RefillMsMean: n.RefillMsMean, RefillMsLast: n.RefillMsLast,
		})
	}
	out.Pool = poolCounters(all)
	s.writeJSON(w, r, out)
}

func poolCounters(p sandbox.Pool) rametv1.PoolCounters {
	return rametv1.PoolCounters{
		Size: p.Size, Ready: p.Ready, Warming: p.Warming, Hits: int64(p.Hits), Misses: int64(p.Misses), HitRate: p.HitRate(),
		Discarded: int64(p.Discarded), HandOffMsMean: p.HandOff.MeanMS(), OnDemandBootMsMean: p.OnDemand.MeanMS(),
		RefillMsMean: p.Refill.MeanMS(), RefillMsLast: p.Refill.LastMS,
	}
}
