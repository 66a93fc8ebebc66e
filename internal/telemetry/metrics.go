// Package telemetry owns what a server tells monitoring about itself: the metrics of
// GET /metrics and the spans that are sent to an OpenTelemetry collector. It
// decides nothing; those who know tell it. Start reading at Metrics and NewTracing.
package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Room is what of a host is promised to sandboxes, in MiB, and what may be; 0 is no limit.
type Room struct {
	MemoryMB, MemoryLimitMB int
	DiskMB, DiskLimitMB     int
	DiskFull                bool
}

// Source answers a scrape.
type Source interface {
	// CountStates counts the sandboxes of this node by state, stopped ones left out.
	CountStates(ctx context.Context) (map[string]int, error)
	// Room says what of the host is promised.
	Room(ctx context.Context) (Room, error)
}

// Metrics is the metrics of one server. Others may register more on its Registry.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	creates  *prometheus.CounterVec
	took     prometheus.Histogram
	ends     *prometheus.CounterVec

	operations *prometheus.CounterVec
	operated   *prometheus.HistogramVec
}

// NewMetrics makes the metrics of a server.
func NewMetrics(version, driver, isolation string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ramet_http_requests_total", Help: "Requests that have ended, by method, route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ramet_http_request_duration_seconds", Help: "How long requests took. Streams last as long as what they show.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ramet_http_requests_in_flight", Help: "Requests under way.",
		}),
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ramet_sandbox_creates_total", Help: "Creates by result: ok, or the code of the error.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ramet_sandbox_create_duration_seconds", Help: "How long creates took that succeeded.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ramet_sandbox_ends_total", Help: "Sandboxes that have stopped or failed, by state and cause.",
		}, []string{"state", "cause"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ramet_operations_total", Help: "Forks, merges, hibernations, wakes, checkpoints, restores and resumes, by result: ok, or the code of the error.",
		}, []string{"operation", "result"}),
		operated: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ramet_operation_duration_seconds", Help: "How long those took that succeeded.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}, []string{"operation"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ramet_info", Help: "1; the labels say what this server is.",
		ConstLabels: prometheus.Labels{"version": version, "driver": driver, "isolation": isolation},
	})
	info.Set(1)
	m.Registry.MustRegister(m.requests, m.seconds, m.inFlight, m.creates, m.took, m.ends, m.operations, m.operated, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch adds what is asked for at each scrape.
func (m *Metrics) Watch(s Source) { m.Registry.MustRegister(&scrape{source: s}) }

// Begin counts a request; its end goes to the function that it returns. Route is the
// pattern of the path, never the path, which has ids.
func (m *Metrics) Begin() (end func(method, route string, status int, took time.Duration)) {
	m.inFlight.Inc()
	return func(method, route string, status int, took time.Duration) {
		m.inFlight.Dec()
		if route == "" {
			route = "none"
		}
		m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
		m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
	}
}

// Created counts a create. Code is empty when it succeeded.
func (m *Metrics) Created(took time.Duration, code string) {
	if code == "" {
		code = "ok"
		m.took.Observe(took.Seconds())
	}
	m.creates.WithLabelValues(code).Inc()
}

// Ended counts a sandbox that has stopped or failed.
func (m *Metrics) Ended(state, cause string) { m.ends.WithLabelValues(state, cause).Inc() }

// Operated counts a fork or another operation on the state of sandboxes. Code is empty when it succeeded.
func (m *Metrics) Operated(operation string, took time.Duration, code string) {
	if code == "" {
		code = "ok"
		m.operated.WithLabelValues(operation).Observe(took.Seconds())
	}
	m.operations.WithLabelValues(operation, code).Inc()
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{
		// What cannot be collected is left out; the rest is worth having.
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// scrape collects what the source knows.
type scrape struct{ source Source }

var (
	statesDesc = prometheus.NewDesc("ramet_sandboxes", "Sandboxes by state, stopped ones left out.", []string{"state"}, nil)
	memoryDesc = prometheus.NewDesc("ramet_promised_memory_bytes", "Memory that is promised to sandboxes.", nil, nil)
	memoryMax  = prometheus.NewDesc("ramet_promised_memory_limit_bytes", "Memory that may be promised.", nil, nil)
	diskDesc   = prometheus.NewDesc("ramet_promised_disk_bytes", "Disk that is promised to sandboxes.", nil, nil)
	diskMax    = prometheus.NewDesc("ramet_promised_disk_limit_bytes", "Disk that may be promised.", nil, nil)
	fullDesc   = prometheus.NewDesc("ramet_disk_full", "1 while the server's disk is full and nothing new is made.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{statesDesc, memoryDesc, memoryMax, diskDesc, diskMax, fullDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	states, err := s.source.CountStates(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(statesDesc, err)
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(statesDesc, prometheus.GaugeValue, float64(n), state)
	}
	room, err := s.source.Room(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(memoryDesc, err)
		return
	}
	full := 0.0
	if room.DiskFull {
		full = 1
	}
	ch <- prometheus.MustNewConstMetric(fullDesc, prometheus.GaugeValue, full)
	for _, v := range []struct {
		desc *prometheus.Desc
		mb   int
	}{{memoryDesc, room.MemoryMB}, {memoryMax, room.MemoryLimitMB}, {diskDesc, room.DiskMB}, {diskMax, room.DiskLimitMB}} {
		ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, float64(v.mb)*(1<<20))
	}
}
