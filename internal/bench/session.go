package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// defaultTemplate is what a create that names none gets.
const defaultTemplate = "default"

// label is the metadata by which the sandboxes of a run are found again, also
// those of a create whose answer was never read.
const label = "ramet-bench"

// session is the server as the benchmarks use it.
type session struct {
	c    *client.Client
	run  string
	pool *warmPool // nil: the server keeps no machines like the ones that are made here

	// noneAhead says that the server does not keep as many processes ahead as it
	// says; aheadStall is how long that takes to see, shorter in tests.
	noneAhead  bool
	aheadStall time.Duration

	doing        string       // the benchmark under way
	hits, misses atomic.Int64 // its creates
}

func newSession(c *client.Client) *session {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return &session{c: c, run: hex.EncodeToString(b[:]), aheadStall: aheadStall}
}

// create makes a sandbox of the default template and shape and says how long
// that took, with the server's own steps.
func (s *session) create(ctx context.Context) (string, Sample, error) {
	return s.createLike(ctx, v1.SandboxCreate{})
}

func (s *session) createLike(ctx context.Context, req v1.SandboxCreate) (string, Sample, error) {
	req.Metadata = &map[string]string{label: s.run}
	never := 0
	req.IdleTimeoutS = &never // what is measured must not hibernate meanwhile
	begin := time.Now()
	sb, err := s.c.Create(ctx, req)
	sample := Sample{Took: time.Since(begin)}
	if err != nil {
		return "", sample, fmt.Errorf("create a sandbox: %w", err)
	}
	if sb.TimingsMs != nil {
		sample.Steps = *sb.TimingsMs
	}
	if sample.hit() {
		s.hits.Add(1)
	} else {
		s.misses.Add(1)
	}
	return sb.Id, sample, nil
}

func (s *session) remove(ctx context.Context, id string) (Sample, error) {
	begin := time.Now()
	if err := s.c.Delete(ctx, id); err != nil {
		return Sample{}, fmt.Errorf("delete a sandbox: %w", err)
	}
	return Sample{Took: time.Since(begin)}, nil
}

// code is what a benchmark runs, and what that must print.
type code struct{ language, text, prints string }

var (
	printOne  = code{"python", "print(1)", "1\n"}
	echoReady = code{"bash", "echo ready", "ready\n"}
)

// exec runs code and checks what it did: a wrong answer is no sample.
func (s *session) exec(ctx context.Context, id string, c code) (Sample, error) {
	begin := time.Now()
	run, err := s.c.Exec(ctx, id, v1.ExecRequest{Code: c.text, Language: &c.language})
	if err != nil {
		return Sample{}, fmt.Errorf("run %s: %w", c.language, err)
	}
	defer run.Close()
	var out []byte
	exit := int64(-1)
	for {
		e, err := run.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Sample{}, fmt.Errorf("run %s: %w", c.language, err)
		}
		switch e.Type {
		case client.EventStdout:
			b, err := client.Text(e)
			if err != nil {
				return Sample{}, err
			}
			out = append(out, b...)
		case client.EventExit:
			if exit, err = client.Number(e); err != nil {
				return Sample{}, err
			}
		}
	}
	took := time.Since(begin)
	if exit != 0 || string(out) != c.prints {
		return Sample{}, fmt.Errorf("run %s: it ended with %d and printed %.100q", c.language, exit, out)
	}
	return Sample{Took: took}, nil
}

// remotePath is where the files of the benchmarks are in a sandbox.
const remotePath = "/root/ramet-bench.bin"

func (s *session) upload(ctx context.Context, id string, content []byte) (Sample, error) {
	begin := time.Now()
	info, err := s.c.WriteFile(ctx, id, remotePath, 0o644, bytes.NewReader(content))
	took := time.Since(begin)
	if err != nil {
		return Sample{}, fmt.Errorf("upload: %w", err)
	}
	if info.Size != int64(len(content)) {
		return Sample{}, fmt.Errorf("upload: the file has %d bytes, not %d", info.Size, len(content))
	}
	return Sample{Took: took}, nil
}

func (s *session) download(ctx context.Context, id string, content []byte) (Sample, error) {
	begin := time.Now()
	body, _, err := s.c.ReadFile(ctx, id, remotePath)
	if err != nil {
		return Sample{}, fmt.Errorf("download: %w", err)
	}
	defer body.Close()
	same := &Comparer{Want: content}
	if _, err := io.Copy(same, body); err != nil {
		return Sample{}, fmt.Errorf("download: %w", err)
	}
	took := time.Since(begin)
	return Sample{Took: took}, same.Err()
}

// Comparer is written what should be Want.
type Comparer struct {
	Want []byte
	at   int
}

func (c *Comparer) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(c.Want[c.at:], p) {
		return 0, fmt.Errorf("other bytes came than were sent, after %d", c.at)
	}
	c.at += len(p)
	return len(p), nil
}

// Err says whether anything is missing.
func (c *Comparer) Err() error {
	if c.at != len(c.Want) {
		return fmt.Errorf("only %d of %d bytes came", c.at, len(c.Want))
	}
	return nil
}

// cleanUp removes what is left of the run. Children and checkpoints have the
// metadata of what they were made of. Checkpoints go last: the delete of a
// sandbox ends what is under way in it.
func (s *session) cleanUp(ctx context.Context) error {
	var left []string
	for sb, err := range s.c.Sandboxes(ctx, client.ListFilter{Metadata: []string{label + "=" + s.run}}) {
		if err != nil {
			return lookError(err)
		}
		left = append(left, sb.Id)
	}
	var errs []error
	for _, id := range left {
		if err := s.c.Delete(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", id, err))
		}
	}
	return errors.Join(append(errs, s.cleanUpCheckpoints(ctx))...)
}

func (s *session) cleanUpCheckpoints(ctx context.Context) error {
	var left []string
	for ckp, err := range s.c.Checkpoints(ctx, "") {
		if err != nil {
			return lookError(err)
		}
		if ckp.Metadata[label] == s.run {
			left = append(left, ckp.Id)
		}
	}
	var errs []error
	for _, id := range left {
		if err := s.c.DeleteCheckpoint(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("remove checkpoint %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// lookError is nil when there is no server any more: with it its sandboxes are
// gone, and the run has said so already.
func lookError(err error) error {
	var gone *client.UnreachableError
	if errors.As(err, &gone) {
		return nil
	}
	return fmt.Errorf("look for what is left: %w", err)
}
