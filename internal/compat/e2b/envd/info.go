package envd

import (
	"context"
	"net/http"
	"time"

	"ramet.dev/ramet/internal/control"
)

// metrics tells what the sandbox uses. Sizes are in bytes, and in MiB where the name says so.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	sb, err := s.control.Get(r.Context(), c.Project, c.ID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	m, busy, err := s.sample(r.Context(), c)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	used := m.MemoryTotalBytes - min(m.MemoryAvailableBytes, m.MemoryTotalBytes)
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": sb.Shape.VCPUs, "cpu_used_pct": busy * 100 / float64(max(sb.Shape.VCPUs, 1)),
		"mem_total": m.MemoryTotalBytes, "mem_used": used, "mem_cache": 0,
		"mem_total_mib": m.MemoryTotalBytes >> 20, "mem_used_mib": used >> 20,
		"disk_total": m.DiskTotalBytes, "disk_used": m.DiskTotalBytes - min(m.DiskFreeBytes, m.DiskTotalBytes),
	})
}

// sampleTime is how long the use of the CPUs is looked at.
const sampleTime = 100 * time.Millisecond

// sample asks twice, and says how many CPUs were busy in between.
func (s *Server) sample(ctx context.Context, c *call) (m *control.GuestMetrics, busy float64, err error) {
	first, _, err := s.control.Metrics(ctx, c.Project, c.ID)
	if err != nil {
		return nil, 0, err
	}
	wait := time.NewTimer(sampleTime)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if m, _, err = s.control.Metrics(ctx, c.Project, c.ID); err != nil {
		return nil, 0, err
	}
	took := m.UptimeSeconds - first.UptimeSeconds
	if took > 0 && m.CpuBusyMillis > first.CpuBusyMillis {
		busy = float64(m.CpuBusyMillis-first.CpuBusyMillis) / 1000 / took
	}
	return m, busy, nil
}

// envs tells the environment that the sandbox was made with.
func (s *Server) envs(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	sb, err := s.control.Get(r.Context(), c.Project, c.ID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	env := sb.Env
	if env == nil {
		env = map[string]string{}
	}
	writeJSON(w, http.StatusOK, env)
}
