package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracing makes spans. Where nobody collects them it makes none.
type Tracing struct {
	Tracer trace.Tracer
	// Propagator reads the caller's trace from a request's headers.
	Propagator propagation.TextMapPropagator

	provider *sdktrace.TracerProvider // nil: off
}

// Off is tracing that makes no spans.
func Off() *Tracing {
	return &Tracing{Tracer: noop.NewTracerProvider().Tracer("ramet"), Propagator: propagation.TraceContext{}}
}

// Wanted says whether the standard environment variables of OpenTelemetry name a
// collector. Without one nothing is sent anywhere.
func Wanted(getenv func(string) string) (bool, error) {
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false, nil
	}
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	if e := getenv("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, but only otlp and none are known", e)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := getenv(name); p != "" {
			if p != "http/protobuf" {
				return false, fmt.Errorf("%s is %q, but only http/protobuf is known", name, p)
			}
			break
		}
	}
	return true, nil
}

// NewTracing sends spans to the collector that the environment names.
func NewTracing(ctx context.Context, version, node string, log *slog.Logger) (*Tracing, error) {
	exporter, err := otlptracehttp.New(ctx) // reads the OTEL_ variables by itself
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	return newTracing(ctx, exporter, version, node, log)
}

func newTracing(ctx context.Context, exporter sdktrace.SpanExporter, version, node string, log *slog.Logger) (*Tracing, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "ramet"),
			attribute.String("service.version", version),
			attribute.String("service.instance.id", node),
		),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
	if err != nil {
		return nil, fmt.Errorf("describe the source of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	log.Info("spans are sent to the collector that the OTEL_ variables name")
	return &Tracing{Tracer: provider.Tracer("ramet"), Propagator: propagation.TraceContext{}, provider: provider}, nil
}

// closeTimeout bounds how long the last spans may take to leave.
const closeTimeout = 5 * time.Second

// Close sends what is left.
func (t *Tracing) Close() error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
