package httpapi

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// startSpan begins the span of a request, as a part of its caller's trace.
func (s *Server) startSpan(r *http.Request) (context.Context, trace.Span) {
	ctx := s.cfg.Tracing.Propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return s.cfg.Tracing.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
}

// endSpan says what became of a request. The path's pattern is its name; the path itself has ids.
func endSpan(span trace.Span, r *http.Request, req *request, status int) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if req.route != "" {
		span.SetName(r.Method + " " + req.route)
	}
	span.SetAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("http.route", req.route),
		attribute.Int("http.response.status_code", status),
		attribute.String("url.path", r.URL.Path),
		attribute.String("ramet.request_id", req.id),
	)
	if status >= 500 {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
}

// spanSteps enters the steps of a lifecycle call, one after the other from begin on.
func (s *Server) spanSteps(ctx context.Context, begin time.Time, steps []sandbox.StepTime) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	for _, step := range steps {
		_, span := s.cfg.Tracing.Tracer.Start(ctx, step.Name, trace.WithTimestamp(begin))
		begin = begin.Add(step.Took)
		span.End(trace.WithTimestamp(begin))
	}
}

// noteRoute remembers which pattern a request matched, for those who count it.
func (s *Server) noteRoute(w http.ResponseWriter, r *http.Request) {
	s.routes.ServeHTTP(w, r)
	if r.Pattern == "/" {
		return // no route: the path could be anything
	}
	requestOf(r.Context()).route = patternPath(r.Pattern)
}

// patternPath leaves the method of a pattern out.
func patternPath(pattern string) string {
	for i := range len(pattern) {
		if pattern[i] == ' ' {
			return pattern[i+1:]
		}
	}
	return pattern
}

// countedMethod bounds what a client can make a label of.
func countedMethod(method string) string {
	for _, m := range methods {
		if m == method {
			return m
		}
	}
	return "other"
}

// GetServerMetrics serves the metrics.
func (s *Server) GetServerMetrics(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Metrics == nil {
		s.writeError(w, r, sandbox.Errorf(sandbox.Unsupported, "no_metrics", "this server keeps no metrics"))
		return
	}
	s.cfg.Metrics.Handler().ServeHTTP(w, r)
}

// GetUsage says what sandboxes and templates cost the host.
func (s *Server) GetUsage(w http.ResponseWriter, r *http.Request) {
	uses, err := s.control.Usage(r.Context(), project(r))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	templates, err := s.control.Templates(r.Context())
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.Usage{
		Sandboxes: make([]rametv1.SandboxUsage, 0, len(uses)),
		Templates: make([]rametv1.TemplateUsage, 0, len(templates)),
	}
	standing := map[string]int{}
	for _, u := range uses {
		standing[u.Sandbox.Template]++
		out.Sandboxes = append(out.Sandboxes, rametv1.SandboxUsage{
			Id: u.Sandbox.ID.String(), Template: u.Sandbox.Template, Status: string(u.Sandbox.State),
			MemoryMb: u.Sandbox.Shape.MemoryMB, DiskMb: u.Sandbox.Shape.DiskMB,
			PssBytes: u.Stats.PSSBytes, OwnBytes: u.Stats.OwnPages * 4096, DiskBytes: u.Stats.DiskBytes,
		})
	}
	for _, t := range templates {
		out.Templates = append(out.Templates, rametv1.TemplateUsage{
			Name: t.Name, Hash: t.Hash, DiskBytes: t.SizeBytes, Sandboxes: standing[t.Name],
		})
	}
	s.writeJSON(w, r, out)
}
