package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
		bad  bool
	}{
		{nil, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "true"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_EXPORTER": "zipkin"}, false, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true, false},
	} {
		got, err := Wanted(func(name string) string { return c.env[name] })
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%v: %v %v", c.env, got, err)
		}
	}
}

func TestSpansReachTheCollector(t *testing.T) {
	received := make(chan string, 4)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		received <- r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(b)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	tr, err := NewTracing(t.Context(), "1.2.3", "n1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tr.Tracer.Start(context.Background(), "a span of the test")
	span.End()
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	got := <-received
	for _, want := range []string{"/v1/traces application/x-protobuf ", "a span of the test", "ramet", "n1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in what the collector got: %q", want, got)
		}
	}
}
