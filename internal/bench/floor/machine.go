package floor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// machine is a bare machine with a connection to its agent. Nothing is attached
// to its network.
type machine struct {
	f     *Floors
	id    sandbox.InstanceID
	dir   string
	m     vmm.Machine
	agent *guest.Client
	runs  int
}

// start starts a machine, cold or from the golden snapshot, until its agent has
// answered, and says how long that took.
func (f *Floors) start(ctx context.Context, cold bool) (_ *machine, _ bench.Sample, err error) {
	id := sandbox.NewInstanceID()
	m := &machine{f: f, id: id, dir: filepath.Join(f.home.Instances(), string(id))}
	f.mu.Lock()
	f.machines[m] = true
	f.mu.Unlock()
	defer func() {
		f.steps.forget(id)
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
			defer cancel()
			err = errors.Join(err, m.free(ctx))
		}
	}()
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, bench.Sample{}, fmt.Errorf("make the machine's directory: %w", err)
	}
	cfg := vmm.Config{
		Instance: id, Dir: m.dir, Source: vmm.Source{Image: f.image},
		Shape: f.shape(),
	}
	if !cold {
		cfg.Source.Snapshot = f.snapshot
	}
	begin := time.Now()
	if m.m, err = f.driver.Start(ctx, cfg); err != nil {
		return nil, bench.Sample{}, err
	}
	started := time.Now()
	if err := m.m.Resume(ctx); err != nil {
		return nil, bench.Sample{}, err
	}
	resumed := time.Now()
	if err := m.connect(ctx); err != nil {
		return nil, bench.Sample{}, err
	}
	end := time.Now()
	steps := f.steps.of(id)
	steps["start"] = millis(started.Sub(begin))
	steps["cont"] = millis(resumed.Sub(started))
	steps["agent"] = millis(end.Sub(resumed))
	return m, bench.Sample{Took: end.Sub(begin), Steps: steps}, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// connect dials the agent and waits for its answer.
func (m *machine) connect(ctx context.Context) error {
	conn, err := m.m.DialAgent(ctx)
	if err != nil {
		return fmt.Errorf("reach the agent: %w", err)
	}
	if m.agent, err = guest.Dial(ctx, conn); err != nil {
		return errors.Join(fmt.Errorf("reach the agent: %w", err), conn.Close())
	}
	return m.hello(ctx)
}

func (m *machine) hello(ctx context.Context) error {
	if _, err := m.agent.Machine().Hello(ctx, &agentv1.HelloRequest{}); err != nil {
		return fmt.Errorf("call the agent: %w", guest.Error(err))
	}
	return nil
}

// refresh gives the machine its identity. Its user processes, the interpreter
// among them, are frozen before.
func (m *machine) refresh(ctx context.Context) error {
	entropy := make([]byte, 256)
	rand.Read(entropy) // never fails
	_, err := m.agent.Machine().Refresh(ctx, &agentv1.RefreshRequest{
		UnixNanos: time.Now().UnixNano(), Entropy: entropy, Hostname: "floor", MachineId: string(m.id), Reseed: true, Unused: true,
	})
	if err != nil {
		return fmt.Errorf("refresh the machine: %w", guest.Error(err))
	}
	return nil
}

// exec runs code and checks what it prints.
func (m *machine) exec(ctx context.Context, language, code, prints string) (bench.Sample, error) {
	m.runs++
	begin := time.Now()
	stream, err := m.agent.Exec().Run(ctx, &agentv1.RunRequest{
		Language: language, Code: code, RunId: fmt.Sprintf("floor-%d", m.runs),
	})
	if err != nil {
		return bench.Sample{}, fmt.Errorf("run %s: %w", language, guest.Error(err))
	}
	var out []byte
	var exit *agentv1.Exit
	for stream.Receive() {
		out = append(out, stream.Msg().GetStdout()...)
		if e := stream.Msg().GetExit(); e != nil {
			exit = e
		}
	}
	took := time.Since(begin)
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		return bench.Sample{}, fmt.Errorf("run %s: %w", language, guest.Error(err))
	}
	if exit == nil || exit.Code != 0 || string(out) != prints {
		return bench.Sample{}, fmt.Errorf("run %s: it printed %.100q and ended with %v", language, out, exit)
	}
	return bench.Sample{Took: took}, nil
}

const (
	remotePath = "/root/ramet-bench.bin"
	// chunk is what the server puts in one message, in bytes.
	chunk = 256 << 10
)

func (m *machine) upload(ctx context.Context, content []byte) (bench.Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	stream, err := m.agent.Files().Write(ctx)
	if err != nil {
		return bench.Sample{}, fmt.Errorf("upload: %w", guest.Error(err))
	}
	err = stream.Send(&agentv1.WriteRequest{Header: &agentv1.WriteHeader{Path: remotePath}})
	for at := 0; at < len(content) && err == nil; at += chunk {
		err = stream.Send(&agentv1.WriteRequest{Data: content[at:min(at+chunk, len(content))]})
	}
	if err == nil {
		err = stream.Send(&agentv1.WriteRequest{Commit: true})
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says what is wrong
		return bench.Sample{}, fmt.Errorf("upload: %w", guest.Error(err))
	}
	info, err := stream.CloseAndReceive()
	took := time.Since(begin)
	if err != nil {
		return bench.Sample{}, fmt.Errorf("upload: %w", guest.Error(err))
	}
	if info.Size != uint64(len(content)) {
		return bench.Sample{}, fmt.Errorf("upload: the file has %d bytes, not %d", info.Size, len(content))
	}
	return bench.Sample{Took: took}, nil
}

func (m *machine) download(ctx context.Context, content []byte) (bench.Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	stream, err := m.agent.Files().Read(ctx, &agentv1.ReadRequest{Path: remotePath})
	if err != nil {
		return bench.Sample{}, fmt.Errorf("download: %w", guest.Error(err))
	}
	same := &bench.Comparer{Want: content}
	for stream.Receive() {
		if _, err := same.Write(stream.Msg().Data); err != nil {
			return bench.Sample{}, errors.Join(err, stream.Close())
		}
	}
	took := time.Since(begin)
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		return bench.Sample{}, fmt.Errorf("download: %w", guest.Error(err))
	}
	return bench.Sample{Took: took}, same.Err()
}

// freeTimeout bounds the end of one machine.
const freeTimeout = 30 * time.Second

// free ends the machine and releases all that it had on the host.
func (m *machine) free(ctx context.Context) error {
	var errs []error
	if m.m != nil {
		errs = append(errs, m.m.Kill(ctx))
	}
	if m.agent != nil {
		m.agent.Close()
	}
	if err := errors.Join(append(errs, m.f.driver.Remove(ctx, m.dir))...); err != nil {
		return fmt.Errorf("free machine %s: %w", m.id, err)
	}
	m.f.mu.Lock()
	delete(m.f.machines, m)
	m.f.mu.Unlock()
	return nil
}
