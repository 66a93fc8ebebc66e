package clitest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	"github.com/coder/websocket"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/guest/agent/ports"
	"ramet.dev/ramet/internal/wstream"
)

// ListPorts implements the API. Ports of a sandbox are those of this machine.
func (s *Server) ListPorts(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	if s.live(w, r, id) == nil {
		return
	}
	list, err := ports.New().Listening(r.Context(), nil)
	if err != nil {
		fail(w, 500, "internal", err.Error())
		return
	}
	out := v1.PortList{Ports: []int{}}
	for _, p := range list.Ports {
		out.Ports = append(out.Ports, int(p))
	}
	answer(w, out)
}

// ConnectPort implements the API.
func (s *Server) ConnectPort(w http.ResponseWriter, r *http.Request, id v1.SandboxID, port int) {
	if s.live(w, r, id) == nil {
		return
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		fail(w, 409, "port_closed", "nothing listens on port "+strconv.Itoa(port)+" of the sandbox; start the service first")
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		conn.Close()
		return
	}
	// How it ends is for the client to tell.
	_ = wstream.Relay(context.WithoutCancel(r.Context()), ws, stream{conn.(*net.TCPConn)}, wstream.Options{Server: true})
}

type stream struct{ *net.TCPConn }

func (s stream) Abort() {
	s.SetLinger(0)
	s.Close()
}

// WatchFiles implements the API: it begins, and nothing changes.
func (s *Server) WatchFiles(w http.ResponseWriter, r *http.Request, id v1.SandboxID, _ v1.WatchFilesParams) {
	if s.live(w, r, id) == nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	json.NewEncoder(w).Encode(v1.FileChange{Type: "started"})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}
