package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/telemetry"
)

// watched is control as the metrics see it.
type watched struct{ *control.Control }

func (w watched) Room(ctx context.Context) (telemetry.Room, error) {
	r, err := w.Control.Room(ctx)
	return telemetry.Room(r), err
}

func TestServerMetrics(t *testing.T) {
	m := telemetry.NewMetrics("1.2.3", "fake", "emulated")
	e := start(t, options{
		control: func(c *control.Config) {
			c.Observer = m
			c.Quota = sandbox.Quota{Sandboxes: 1}
		},
		api: func(c *httpapi.Config) { c.Metrics = m },
	})
	m.Watch(watched{e.control})
	id := e.create()
	e.do("POST", "/v1/sandboxes", "")
	e.do("GET", "/v1/sandboxes/"+id, "")
	e.do("GET", "/nonsense/"+id, "")
	res, body := e.do("GET", "/metrics", "")
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	for _, want := range []string{
		`ramet_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="200"} 1`,
		`ramet_http_requests_total{method="POST",route="/v1/sandboxes",status="429"} 1`,
		`ramet_http_requests_total{method="GET",route="none",status="404"} 1`,
		`ramet_sandboxes{state="running"} 1`,
		`ramet_sandbox_creates_total{result="ok"} 1`,
		`ramet_sandbox_creates_total{result="quota_sandboxes"} 1`,
		`ramet_promised_memory_bytes 1.073741824e+09`,
		`ramet_disk_full 0`,
		`ramet_info{driver="fake",isolation="emulated",version="1.2.3"} 1`,
		`ramet_http_requests_in_flight 1`,
	} {
		if !strings.Contains(string(body), want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(string(body), string(id[4:])) {
		t.Error("an id is in the metrics")
	}
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	_, body = e.do("GET", "/metrics", "")
	if want := `ramet_sandbox_ends_total{cause="delete",state="stopped"} 1`; !strings.Contains(string(body), want) {
		t.Errorf("%s is missing", want)
	}
	e.key = "wrong"
	if res, _ := e.do("GET", "/metrics", ""); res.StatusCode != 401 {
		t.Errorf("without a key: %d", res.StatusCode)
	}
}

func TestSpansAreOfTheCallersTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	e := start(t, options{api: func(c *httpapi.Config) {
		c.Tracing = &telemetry.Tracing{Tracer: provider.Tracer("test"), Propagator: propagation.TraceContext{}}
	}})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	e.do("POST", "/v1/sandboxes", "", "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	names := map[string]bool{}
	waitFor(t, 5*time.Second, "the request's span", func() bool {
		for _, s := range spans.GetSpans() {
			if s.SpanContext.TraceID().String() == trace {
				names[s.Name] = true
			}
		}
		return names["POST /v1/sandboxes"]
	})
	for _, want := range []string{"record", "start_vmm", "identity", "commit"} {
		if !names[want] {
			t.Errorf("no span of %s in %v", want, names)
		}
	}
}

func TestUsage(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	res, body := e.do("GET", "/v1/usage", "")
	for _, want := range []string{`"id":"` + id + `"`, `"pss_bytes":49283072`, `"own_bytes":2457600`, `"disk_bytes":1048576`, `"name":"default"`, `"sandboxes":1`} {
		if res.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s is not in %d %s", want, res.StatusCode, body)
		}
	}
}
