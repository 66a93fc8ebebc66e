package e2b

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// metric is one sample of what a sandbox uses, in bytes and percent.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"` // not known: 0
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

func metricOf(sb sandbox.Sandbox, g *control.GuestMetrics) metric {
	now := time.Now().UTC()
	m := metric{
		Timestamp: now, TimestampUnix: now.Unix(), CPUCount: sb.Shape.VCPUs,
		MemTotal: g.MemoryTotalBytes, MemUsed: g.MemoryTotalBytes - min(g.MemoryAvailableBytes, g.MemoryTotalBytes),
		DiskTotal: g.DiskTotalBytes, DiskUsed: g.DiskTotalBytes - min(g.DiskFreeBytes, g.DiskTotalBytes),
	}
	// Of all its CPUs, on the average since it runs. The guest may claim anything.
	if up := g.UptimeSeconds * 1000 * float64(sb.Shape.VCPUs); up > 0 {
		if pct := float64(g.CpuBusyMillis) / up * 100; pct >= 0 && pct <= 100 {
			m.CPUUsedPct = pct
		}
	}
	return m
}

// metrics answers with the present sample: nothing is kept of the past. A paused sandbox
// uses nothing.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	sb, err := s.find(r)
	out := []metric{}
	if err == nil && sb.State == sandbox.Running {
		var g *control.GuestMetrics
		g, _, err = s.control.Metrics(r.Context(), sb.Project, sb.ID)
		switch {
		case err == nil:
			if m := metricOf(sb, g); within(m.TimestampUnix, r) {
				out = append(out, m)
			}
		case isCode(err, "sandbox_hibernated"):
			err = nil
		}
	}
	if err != nil {
		s.front.Fail(w, r, gone(r.PathValue("id"), err))
		return
	}
	s.write(w, http.StatusOK, out)
}

// within says whether a time is in the span that a request asks for. A span that ends in the
// running minute has the present in it.
func within(at int64, r *http.Request) bool {
	q := r.URL.Query()
	start, err := strconv.ParseInt(q.Get("start"), 10, 64)
	if err == nil && at < start {
		return false
	}
	end, err := strconv.ParseInt(q.Get("end"), 10, 64)
	return err != nil || at <= end+60
}

// allMetrics answers for several sandboxes; those that are not there, or do not answer, are
// left out.
func (s *Server) allMetrics(w http.ResponseWriter, r *http.Request) {
	out := map[string]metric{}
	var ids []string
	for _, list := range r.URL.Query()["sandbox_ids"] {
		ids = append(ids, strings.Split(list, ",")...)
	}
	if len(ids) > 100 {
		s.front.Fail(w, r, sandbox.Errorf(sandbox.Invalid, "too_many", "there are %d sandbox_ids; there can be 100", len(ids)))
		return
	}
	for _, shown := range ids {
		id, err := parseID(shown)
		if err != nil {
			continue
		}
		sb, err := s.control.Get(r.Context(), httpapi.Project(r), id)
		if err != nil || sb.State != sandbox.Running {
			continue
		}
		if g, _, err := s.control.Metrics(r.Context(), sb.Project, sb.ID); err == nil {
			out[shown] = metricOf(sb, g)
		}
	}
	s.write(w, http.StatusOK, map[string]any{"sandboxes": out})
}

// logEntry is an event in the life of a sandbox.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// maxEvents bounds what is read of a history for one call.
const maxEvents = 10000

// history returns the events of the sandbox that a path names, oldest first.
func (s *Server) history(r *http.Request) ([]logEntry, error) {
	sb, err := s.find(r)
	if err != nil {
		return nil, err
	}
	feed, err := s.control.Feed(r.Context(), sb.Project, sb.ID, control.FeedStart{})
	if err != nil {
		return nil, err
	}
	list := []logEntry{}
	for len(list) < maxEvents {
		events, _, err := feed.Next(r.Context())
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			entry := logEntry{Timestamp: e.Time.UTC(), Level: "info", Message: e.Type + ": " + e.Reason, Fields: map[string]string{"cause": e.Cause}}
			switch {
			case strings.HasSuffix(e.Type, "failed"):
				entry.Level = "error"
			case e.Type == "unresponsive" || e.Type == "egress_denied":
				entry.Level = "warn"
			}
			list = append(list, entry)
		}
	}
	return list, nil
}

func (s *Server) logsV1(w http.ResponseWriter, r *http.Request) {
	list, err := s.history(r)
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	type line struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	lines := make([]line, 0, len(list))
	for _, e := range list {
		lines = append(lines, line{e.Timestamp, e.Message})
	}
	s.write(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": list})
}

// levels are in the order of their weight.
var levels = []string{"debug", "info", "warn", "error"}

func (s *Server) logsV2(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := 1000
	var err error
	if t := q.Get("limit"); t != "" {
		if limit, err = strconv.Atoi(t); err != nil || limit < 1 {
			s.front.Fail(w, r, sandbox.Errorf(sandbox.Invalid, "invalid_limit", "limit is %s; it has to be more than 0", short(t)))
			return
		}
	}
	list, err := s.history(r)
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	backward := q.Get("direction") == "backward"
	cursor, cerr := strconv.ParseInt(q.Get("cursor"), 10, 64) // milliseconds
	list = slices.DeleteFunc(list, func(e logEntry) bool {
		at := e.Timestamp.UnixMilli()
		return cerr == nil && (backward && at > cursor || !backward && at < cursor) ||
			slices.Index(levels, e.Level) < slices.Index(levels, q.Get("level")) ||
			!strings.Contains(e.Message, q.Get("search"))
	})
	if backward {
		slices.Reverse(list)
	}
	s.write(w, http.StatusOK, map[string]any{"logs": list[:min(limit, len(list))]})
}
