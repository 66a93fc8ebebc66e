package agent

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/agent/files"
	"ramet.dev/ramet/internal/guest/agent/ports"
	"ramet.dev/ramet/internal/guest/exec"
	"ramet.dev/ramet/internal/guest/wire"
	"ramet.dev/ramet/internal/network/layout"
)

// maxRequest bounds one message from the host, in bytes. The code of a run is
// the largest that comes.
const maxRequest = 32 << 20

// Handler serves the services to the host.
func Handler(machine *Machine, runs agentv1connect.ExecHandler, dial agentv1connect.PortsHandler) http.Handler {
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxRequest),
		connect.WithCodec(codec{}),
		// The stream is local and the guest's CPU may be emulated.
		connect.WithCompression("gzip", nil, nil),
	)
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(machine, options))
	path, handler := agentv1connect.NewExecHandler(runs, options)
	mux.Handle(path, exec.Batch(handler))
	mux.Handle(agentv1connect.NewFilesHandler(files.Service{}, options))
	mux.Handle(agentv1connect.NewPortsHandler(dial, options))
	return mux
}

// Serve is the second half of stage 2: it answers the host on the agent's port
// until ctx ends or the port fails.
func Serve(ctx context.Context, p Platform, runs Executor, logger *slog.Logger) error {
	port, err := p.port()
	if err != nil {
		return err
	}
	machine := NewMachine(runs, p, logger)
	defer machine.Close()
	dial := ports.New(layout.GuestIP)
	defer dial.Close()
	return wire.Serve(ctx, port, Handler(machine, runs, dial), logger)
}
