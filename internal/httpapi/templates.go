package httpapi

import (
	"context"
	"net/http"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// ListTemplates lists templates.
func (s *Server) ListTemplates(w http.ResponseWriter, r *http.Request) {
	list, err := s.control.Templates(r.Context())
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.TemplateList{Templates: make([]rametv1.Template, 0, len(list)), Builds: []rametv1.TemplateState{}}
	for _, t := range list {
		out.Templates = append(out.Templates, toTemplate(t))
	}
	for _, b := range s.control.Builds() {
		out.Builds = append(out.Builds, toTemplateState(b))
	}
	s.writeJSON(w, r, out)
}

func toTemplate(t sandbox.Template) rametv1.Template {
	out := rametv1.Template{Name: t.Name, Hash: t.Hash, SizeBytes: t.SizeBytes, BuiltAt: t.BuiltAt.UTC(), Goldens: t.Goldens}
	if out.Goldens == nil {
		out.Goldens = []int{}
	}
	if len(t.Aliases) > 0 {
		out.Aliases = &t.Aliases
	}
	return out
}

func toTemplateState(b control.BuildState) rametv1.TemplateState {
	if b.Failed != "" {
		return rametv1.TemplateState{Name: b.Name, State: "failed", Error: &b.Failed}
	}
	out := rametv1.TemplateState{Name: b.Name, State: "building"}
	if b.Step != "" {
		out.Step = &b.Step
	}
	if b.Detail != "" {
		out.Detail = &b.Detail
	}
	if b.Fraction > 0 {
		out.Fraction = &b.Fraction
	}
	return out
}

// DeleteTemplate removes a template.
func (s *Server) DeleteTemplate(w http.ResponseWriter, r *http.Request, name string) {
	s.writeDone(w, r, s.control.DeleteTemplate(r.Context(), name))
}

// built is the outcome of a build.
type built struct {
	template sandbox.Template
	err      error
}

// BuildTemplate builds a template and streams its progress.
func (s *Server) BuildTemplate(w http.ResponseWriter, r *http.Request) {
	var body rametv1.TemplateBuild
	if err := decode(w, r, maxBody, false, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	events := make(chan progress.Event)
	end := make(chan built, 1)
	go func() {
		t, err := s.control.BuildTemplate(ctx, body.Name, func(e progress.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
		end <- built{t, err}
		close(end)
	}()
	defer func() {
		cancel()
		for range end { // until the goroutine has ended
		}
	}()
	s.copyProgress(w, r, events, end)
}

func (s *Server) copyProgress(w http.ResponseWriter, r *http.Request, events <-chan progress.Event, end <-chan built) {
	out := newNDJSON(w)
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for {
		var err error
		select {
		case e := <-events:
			if err = out.write(toBuildEvent(e)); err == nil {
				err = out.flush()
			}
		case b := <-end:
			s.endBuild(w, r, out, b)
			return
		case <-quiet.C:
			err = out.keepAlive()
		case <-s.draining.Done():
			s.endBuild(w, r, out, built{err: errDraining})
			return
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
		quiet.Reset(s.cfg.KeepAlive)
	}
}

func toBuildEvent(e progress.Event) rametv1.BuildEvent {
	out := rametv1.BuildEvent{Type: "progress", Step: &e.Step}
	if e.Detail != "" {
		out.Detail = &e.Detail
	}
	if e.Fraction != 0 {
		out.Fraction = &e.Fraction
	}
	if e.Done {
		out.Done = &e.Done
	}
	return out
}

func (s *Server) endBuild(w http.ResponseWriter, r *http.Request, out *ndjson, b built) {
	last := rametv1.BuildEvent{Type: "done"}
	if b.err != nil {
		if !out.begun {
			s.writeError(w, r, b.err)
			return
		}
		req := requestOf(r.Context())
		req.err = b.err
		d := describe(b.err, req.id)
		last = rametv1.BuildEvent{Type: "error", Error: &d.Error, Code: &d.Code, RequestId: &d.RequestId}
	} else {
		t := toTemplate(b.template)
		last.Template = &t
	}
	if out.write(last) == nil {
		_ = out.flush() // a client that is gone is its own business
	}
}
