package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// maxHeader bounds the headers of a request, in bytes.
const maxHeader = 64 << 10

// HTTPServer returns a server of the whole API. Its limits hold whether it is
// served with TLS or without; a TLS handshake must end within ReadHeaderTimeout too.
// Bodies and streams have limits of their own, see body.go.
func (s *Server) HTTPServer() *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	// HTTP/2 without TLS as well: one connection for many calls.
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		Protocols:         p,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}
