package clitest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// maxFullCheckpoints is how many checkpoints with memory a sandbox can have here.
const maxFullCheckpoints = 2

// newBoxLocked makes a running sandbox like another one, under an id that a script can foretell.
func (s *Server) newBoxLocked(like v1.Sandbox, env map[string]string) (*box, error) {
	s.made++
	// 1111...01, 2222...02
	id := "sbx_" + strings.Repeat(fmt.Sprintf("%x", s.made%16), 30) + fmt.Sprintf("%02x", s.made)
	now := time.Now().UTC()
	b := &box{Sandbox: like, env: maps.Clone(env), dir: filepath.Join(s.dir, id)}
	b.Id, b.State, b.Status, b.CreatedAt, b.UpdatedAt = id, "ready", "running", now, now
	b.Metadata = maps.Clone(like.Metadata)
	b.TimingsMs, b.ExpiresAt, b.BootNote, b.MergedInto = nil, nil, nil, nil
	if err := os.MkdirAll(filepath.Join(b.dir, "root"), 0o755); err != nil {
		return nil, err
	}
	s.sandboxes[id] = b
	s.order = append([]string{id}, s.order...)
	return b, nil
}

func answerWith(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encode(w, v)
}

// ForkSandbox implements the API. Children have the parent's files.
func (s *Server) ForkSandbox(w http.ResponseWriter, r *http.Request, id v1.SandboxID, _ v1.ForkSandboxParams) {
	req, ok := read[v1.ForkRequest](w, r)
	if !ok {
		return
	}
	parent := s.live(w, r, id)
	if parent == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := v1.Forked{PausedMs: 12.5, DirtyBytes: 3 << 20, TimingsMs: map[string]float64{"save": 14, "start": 20, "total": 34}}
	for range valueOr(req.N, 1) {
		child, err := s.newBoxLocked(parent.Sandbox, parent.env)
		if err == nil {
			err = os.CopyFS(child.dir, os.DirFS(parent.dir))
		}
		if err != nil {
			fail(w, 500, "internal", err.Error())
			return
		}
		child.Origin, child.Parent, child.Checkpoint, child.Space = "fork", &parent.Id, nil, nil
		out.Children = append(out.Children, child.Id)
		out.Sandboxes = append(out.Sandboxes, child.Sandbox)
	}
	answerWith(w, 201, out)
}

// MergeSandbox implements the API.
func (s *Server) MergeSandbox(w http.ResponseWriter, r *http.Request, id v1.SandboxID, winner string) {
	if id == winner {
		fail(w, 400, "merge_into_itself", "a sandbox cannot be merged into itself")
		return
	}
	parent, won := s.live(w, r, id), (*box)(nil)
	if parent != nil {
		won = s.live(w, r, winner)
	}
	if won == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parent.dir, won.dir = won.dir, parent.dir
	won.Status, won.State, won.MergedInto = "stopped", "stopped", &parent.Id
	for _, ckp := range s.checkpoints {
		if ckp.Sandbox == won.Id {
			ckp.Sandbox = parent.Id
		}
	}
	answer(w, timedBox(parent))
}

// timedBox is the answer of a call that has changed a machine.
func timedBox(b *box) v1.Sandbox {
	out := b.Sandbox
	out.TimingsMs = &map[string]float64{"save": 25, "total": 31}
	return out
}

// HibernateSandbox implements the API.
func (s *Server) HibernateSandbox(w http.ResponseWriter, _ *http.Request, id v1.SandboxID) {
	b := s.find(w, id)
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Status != "running" && b.Status != "hibernated" {
		fail(w, 409, "sandbox_not_running", "the sandbox is "+b.Status)
		return
	}
	ends := time.Now().UTC().Add(30 * 24 * time.Hour)
	b.Status, b.State, b.ExpiresAt = "hibernated", "hibernated", &ends
	answer(w, timedBox(b))
}

// WakeSandbox implements the API. A sandbox with the metadata cold=yes loses its memory.
func (s *Server) WakeSandbox(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	if b := s.live(w, r, id); b != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(w, timedBox(b))
	}
}

// wakeLocked does what any call does to a hibernated sandbox.
func (b *box) wakeLocked() {
	b.Status, b.State, b.ExpiresAt = "running", "ready", nil
	if b.Metadata["cold"] == "yes" {
		note := "its memory was saved by another QEMU, so it has booted from its disk"
		b.BootNote = &note
	}
}

// CreateCheckpoint implements the API.
func (s *Server) CreateCheckpoint(w http.ResponseWriter, r *http.Request, id v1.SandboxID, _ v1.CreateCheckpointParams) {
	req, ok := read[v1.CheckpointCreate](w, r)
	if !ok {
		return
	}
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, kind := valueOr(req.Name, ""), valueOr(req.Kind, "full")
	var same []*v1.Checkpoint // newest first
	for _, ckp := range s.checkpoints {
		if ckp.Sandbox != id {
			continue
		}
		if name != "" && ckp.Name == name {
			fail(w, 409, "checkpoint_exists", "the sandbox has a checkpoint "+name)
			return
		}
		if ckp.Kind == kind {
			same = append(same, ckp)
		}
	}
	if kind == "full" && len(same) >= maxFullCheckpoints {
		if !valueOr(req.DeleteOldest, false) {
			fail(w, 429, "too_many_checkpoints", "the sandbox has 2 checkpoints of the kind full, as many as it may")
			return
		}
		s.dropCheckpointLocked(same[len(same)-1].Id)
	}
	s.saved++
	ends := time.Now().UTC().Add(90 * 24 * time.Hour)
	ckp := &v1.Checkpoint{
		Id: fmt.Sprintf("ckp_%02x%s", 0xc0+s.saved, strings.Repeat("c", 30)), Name: name, Kind: kind, Sandbox: id, Status: "ready",
		Template: b.Template, TemplateHash: b.TemplateHash, MemoryMb: b.MemoryMb, Vcpus: b.Vcpus, DiskMb: b.DiskMb,
		Egress: b.Egress, Metadata: maps.Clone(b.Metadata), Isolation: b.Isolation, Region: b.Region, Node: b.Node,
		IdleTimeoutS: b.IdleTimeoutS, MaxLifetimeS: b.MaxLifetimeS, SizeBytes: 45 << 20, CreatedAt: time.Now().UTC(), ExpiresAt: &ends,
	}
	s.checkpoints = append([]*v1.Checkpoint{ckp}, s.checkpoints...)
	out, paused, dirty := *ckp, 11.5, int64(3<<20)
	out.PausedMs, out.DirtyBytes, out.TimingsMs = &paused, &dirty, &map[string]float64{"save": 40, "total": 41}
	answerWith(w, 201, out)
}

func (s *Server) dropCheckpointLocked(id string) bool {
	before := len(s.checkpoints)
	s.checkpoints = slices.DeleteFunc(s.checkpoints, func(c *v1.Checkpoint) bool { return c.Id == id })
	return len(s.checkpoints) < before
}

// checkpointPage answers with a page of the checkpoints of a sandbox, or of all. A page
// holds two, so that clients must page.
func (s *Server) checkpointPage(w http.ResponseWriter, of string, cursor *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []v1.Checkpoint{}
	for _, ckp := range s.checkpoints {
		if of == "" || ckp.Sandbox == of {
			list = append(list, *ckp)
		}
	}
	start := 0
	if cursor != nil {
		fmt.Sscanf(*cursor, "at%d", &start)
	}
	page := v1.CheckpointList{Checkpoints: list[min(start, len(list)):]}
	if len(page.Checkpoints) > 2 {
		page.Checkpoints = page.Checkpoints[:2]
		next := fmt.Sprintf("at%d", start+2)
		page.NextCursor = &next
	}
	answer(w, page)
}

// ListCheckpoints implements the API.
func (s *Server) ListCheckpoints(w http.ResponseWriter, _ *http.Request, params v1.ListCheckpointsParams) {
	s.checkpointPage(w, "", params.Cursor)
}

// ListSandboxCheckpoints implements the API.
func (s *Server) ListSandboxCheckpoints(w http.ResponseWriter, _ *http.Request, id v1.SandboxID, params v1.ListSandboxCheckpointsParams) {
	if s.find(w, id) != nil {
		s.checkpointPage(w, id, params.Cursor)
	}
}

// checkpoint returns a checkpoint, or answers 404.
func (s *Server) checkpoint(w http.ResponseWriter, id string) *v1.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ckp := range s.checkpoints {
		if ckp.Id == id {
			return ckp
		}
	}
	fail(w, 404, "checkpoint_not_found", "checkpoint not found")
	return nil
}

// GetCheckpoint implements the API.
func (s *Server) GetCheckpoint(w http.ResponseWriter, _ *http.Request, id v1.CheckpointID) {
	if ckp := s.checkpoint(w, id); ckp != nil {
		answer(w, ckp)
	}
}

// DeleteCheckpoint implements the API.
func (s *Server) DeleteCheckpoint(w http.ResponseWriter, _ *http.Request, id v1.CheckpointID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropCheckpointLocked(id) {
		fail(w, 404, "checkpoint_not_found", "checkpoint not found")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// RestoreSandbox implements the API. Files stay as they are.
func (s *Server) RestoreSandbox(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	req, ok := read[v1.RestoreRequest](w, r)
	if !ok {
		return
	}
	b := s.find(w, id)
	if b == nil {
		return
	}
	if ckp := s.checkpoint(w, req.Checkpoint); ckp != nil {
		if ckp.Sandbox != id {
			fail(w, 404, "checkpoint_not_found", "checkpoint not found")
			return
		}
		answer(w, timedBox(b))
	}
}

// freezeLocked makes a Space of a sandbox, as the idle timeout of a persistent one does.
func (s *Server) freezeLocked(b *box) {
	ends := time.Now().UTC().Add(30 * 24 * time.Hour)
	s.saved++
	s.spaces = append([]*v1.Space{{
		Id: fmt.Sprintf("spc_%02x%s", 0xc0+s.saved, strings.Repeat("d", 30)), Sandbox: b.Id, Status: "ready", Persistent: true,
		Template: b.Template, TemplateHash: b.TemplateHash, MemoryMb: b.MemoryMb, Vcpus: b.Vcpus, DiskMb: b.DiskMb,
		Egress: b.Egress, Metadata: maps.Clone(b.Metadata), Isolation: b.Isolation, Region: b.Region, Node: b.Node,
		SizeBytes: 50 << 20, CreatedAt: time.Now().UTC(), ExpiresAt: &ends,
	}}, s.spaces...)
	b.Status, b.State = "stopped", "stopped"
}

// Freeze makes Spaces of all persistent sandboxes that run, as if they had been idle.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.order {
		if b := s.sandboxes[id]; b.Persistent && b.Status == "running" {
			s.freezeLocked(b)
		}
	}
}

// ListSpaces implements the API.
func (s *Server) ListSpaces(w http.ResponseWriter, _ *http.Request, _ v1.ListSpacesParams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := v1.SpaceList{Spaces: []v1.Space{}}
	for _, space := range s.spaces {
		out.Spaces = append(out.Spaces, *space)
	}
	answer(w, out)
}

// takeSpaceLocked removes a Space and returns it, or answers 404.
func (s *Server) takeSpaceLocked(w http.ResponseWriter, id string) *v1.Space {
	for i, space := range s.spaces {
		if space.Id == id {
			s.spaces = slices.Delete(s.spaces, i, i+1)
			return space
		}
	}
	fail(w, 404, "space_not_found", "space not found")
	return nil
}

// GetSpace implements the API.
func (s *Server) GetSpace(w http.ResponseWriter, _ *http.Request, id v1.SpaceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, space := range s.spaces {
		if space.Id == id {
			answer(w, space)
			return
		}
	}
	fail(w, 404, "space_not_found", "space not found")
}

// DeleteSpace implements the API.
func (s *Server) DeleteSpace(w http.ResponseWriter, _ *http.Request, id v1.SpaceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takeSpaceLocked(w, id) != nil {
		w.WriteHeader(http.StatusNoContent)
	}
}

// ResumeSpace implements the API.
func (s *Server) ResumeSpace(w http.ResponseWriter, r *http.Request, id v1.SpaceID, _ v1.ResumeSpaceParams) {
	req, ok := read[v1.SpaceResume](w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.takeSpaceLocked(w, id)
	if space == nil {
		return
	}
	was := s.sandboxes[space.Sandbox]
	b, err := s.newBoxLocked(was.Sandbox, was.env)
	if err != nil {
		fail(w, 500, "internal", err.Error())
		return
	}
	b.Origin, b.Parent, b.Space, b.Checkpoint = "space", &was.Id, &space.Id, nil
	b.IdleTimeoutS, b.MaxLifetimeS = valueOr(req.IdleTimeoutS, b.IdleTimeoutS), valueOr(req.MaxLifetimeS, b.MaxLifetimeS)
	answerWith(w, 201, timedBox(b))
}

// GetLineage implements the API. All sandboxes are one family here.
func (s *Server) GetLineage(w http.ResponseWriter, _ *http.Request, params v1.GetLineageParams) {
	if params.Sandbox != nil && s.find(w, *params.Sandbox) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := v1.Lineage{Sandboxes: []v1.Sandbox{}, Checkpoints: []v1.Checkpoint{}}
	for _, id := range s.order {
		out.Sandboxes = append(out.Sandboxes, s.sandboxes[id].Sandbox)
	}
	for _, ckp := range s.checkpoints {
		out.Checkpoints = append(out.Checkpoints, *ckp)
	}
	answer(w, out)
}

// contents reads the files of a sandbox below some paths.
func contents(root string, paths []string) (map[string]string, error) {
	files := map[string]string{}
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(root, path), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(p)
			files[strings.TrimPrefix(p, root)] = string(content)
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	return files, nil
}

// DiffSandboxes implements the API: it compares the files in the root directories.
func (s *Server) DiffSandboxes(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	req, ok := read[v1.DiffRequest](w, r)
	if !ok {
		return
	}
	a, b := s.live(w, r, id), (*box)(nil)
	if a != nil {
		b = s.live(w, r, req.Other)
	}
	if b == nil {
		return
	}
	paths := valueOr(req.Paths, []string{"/root"})
	inA, errA := contents(a.dir, paths)
	inB, errB := contents(b.dir, paths)
	if err := errors.Join(errA, errB); err != nil {
		fail(w, 500, "internal", err.Error())
		return
	}
	out := v1.Diff{Added: []string{}, Removed: []string{}, Modified: []string{}}
	for path, content := range inA {
		if other, found := inB[path]; !found {
			out.Removed = append(out.Removed, path)
		} else if other != content {
			out.Modified = append(out.Modified, path)
		}
	}
	for path := range inB {
		if _, found := inA[path]; !found {
			out.Added = append(out.Added, path)
		}
	}
	answer(w, out)
}

// CollectGarbage implements the API: there is always the same.
func (s *Server) CollectGarbage(w http.ResponseWriter, r *http.Request) {
	req, ok := read[v1.GCRequest](w, r)
	if !ok {
		return
	}
	answer(w, v1.GCReport{
		DryRun: valueOr(req.DryRun, false), Bytes: 48 << 20, Instances: []v1.Garbage{},
		Snapshots: []v1.Garbage{{Id: strings.Repeat("e", 32), Bytes: 48 << 20, Why: "no record needs it"}},
	})
}
