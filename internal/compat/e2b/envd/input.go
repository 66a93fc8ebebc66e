package envd

import (
	"bytes"
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	envdv1 "ramet.dev/ramet/api/envd/v1"
)

// SendInput writes to a process.
func (s processes) SendInput(ctx context.Context, req *envdv1.SendInputRequest) (*envdv1.SendInputResponse, error) {
	c := callOf(ctx)
	run, err := s.find(ctx, c, req.GetProcess())
	if err != nil {
		return nil, err
	}
	b, err := inputFor(run, req.GetInput())
	if err != nil {
		return nil, err
	}
	if _, err := s.control.Input(ctx, c.Project, c.ID, run.RunId, bytes.NewReader(b), false); err != nil {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.SendInputResponse{}, nil
}

// inputFor returns what to write to a process, when it takes that kind.
func inputFor(run *agentv1.RunInfo, in *envdv1.ProcessInput) ([]byte, error) {
	switch k := in.GetInput().(type) {
	case *envdv1.ProcessInput_Stdin:
		if run.Pty {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has a terminal; write to that, not to its standard input"))
		}
		return k.Stdin, nil
	case *envdv1.ProcessInput_Pty:
		if !run.Pty {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal; write to its standard input"))
		}
		return k.Pty, nil
	}
	return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("input is missing; give stdin or pty"))
}

// CloseStdin ends the standard input of a process.
func (s processes) CloseStdin(ctx context.Context, req *envdv1.CloseStdinRequest) (*envdv1.CloseStdinResponse, error) {
	c := callOf(ctx)
	run, err := s.find(ctx, c, req.GetProcess())
	if err != nil {
		return nil, err
	}
	if run.Pty {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal cannot be closed like standard input; send Ctrl+D (0x04)"))
	}
	if _, err := s.control.Input(ctx, c.Project, c.ID, run.RunId, bytes.NewReader(nil), true); err != nil {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.CloseStdinResponse{}, nil
}

// StreamInput writes to a process what comes, in its order.
func (s processes) StreamInput(ctx context.Context, in *connect.ClientStream[envdv1.StreamInputRequest]) (*envdv1.StreamInputResponse, error) {
	c := callOf(ctx)
	if !in.Receive() {
		if err := in.Err(); err != nil {
			return nil, err
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the stream is empty; its first message names the process"))
	}
	start := in.Msg().GetStart()
	if start == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message has to name the process"))
	}
	run, err := s.find(ctx, c, start.GetProcess())
	if err != nil {
		return nil, err
	}
	r := &inputReader{in: in, run: run}
	if _, err := s.control.Input(ctx, c.Project, c.ID, run.RunId, r, false); err != nil {
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			err = r.err
		}
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.StreamInputResponse{}, nil
}

// inputReader reads the input out of a stream of messages.
type inputReader struct {
	in   *connect.ClientStream[envdv1.StreamInputRequest]
	run  *agentv1.RunInfo
	rest []byte
	err  error
}

func (r *inputReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if !r.in.Receive() {
			if r.err = r.in.Err(); r.err == nil {
				r.err = io.EOF
			}
			continue
		}
		if d := r.in.Msg().GetData(); d != nil {
			r.rest, r.err = inputFor(r.run, d.GetInput())
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
