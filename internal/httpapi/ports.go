package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/coder/websocket"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wstream"
)

// ListPorts lists what listens in a sandbox.
func (s *Server) ListPorts(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	ports, err := s.control.Listening(r.Context(), project(r), parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.PortList{Ports: ports})
}

// ConnectPort makes a WebSocket of a connection to a port.
func (s *Server) ConnectPort(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, port int) {
	parsed, err := sandbox.ParseID(id)
	if err == nil && !isUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		err = &httpError{
			status: http.StatusUpgradeRequired, code: "upgrade_required",
			message: "a connection to a port is a WebSocket over HTTP/1.1; call it with a WebSocket client",
		}
	}
	if err == nil {
		err = s.checkSocket(r)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	raw, err := s.control.Dial(ctx, project(r), parsed, port)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	conn, ok := raw.(control.PortConn)
	if !ok {
		s.writeError(w, r, errors.Join(errors.New("the connection cannot be half-closed"), raw.Close()))
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		CompressionMode:    websocket.CompressionDisabled,
		InsecureSkipVerify: true, // checkSocket has looked at the Origin, before anything was dialled
	})
	if err != nil { // it has answered why
		conn.Abort()
		requestOf(r.Context()).err = err
		return
	}
	requestOf(r.Context()).err = wstream.Relay(ctx, ws, conn, wstream.Options{Server: true, Reason: closeReason, Ping: s.cfg.KeepAlive})
}

// isUpgrade says whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Header.Get("Sec-Websocket-Key") != "" && r.Header.Get("Upgrade") != ""
}

// closeReason is what a WebSocket's client is told of the end of its connection.
func closeReason(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return wstream.ReasonReset
}
