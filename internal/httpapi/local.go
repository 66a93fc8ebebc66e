package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkLocal keeps web pages away from a server without keys, but for those of origins that
// the server was told by name. A page of anywhere can let the browser of this host send
// requests here: under a name of its own that resolves to a loopback address (the Host
// header tells), or across origins (the Origin header tells).
func (s *Server) checkLocal(r *http.Request) error {
	if !loopbackHost(r.Host) {
		return &httpError{
			status: http.StatusForbidden, code: "foreign_host",
			message: "a server without API keys is called by a loopback address only, such as http://127.0.0.1",
		}
	}
	if sameOrigin(r) || s.named(r.Header.Get("Origin")) {
		return nil
	}
	return &httpError{
		status: http.StatusForbidden, code: "foreign_origin",
		message: "a server without API keys takes no requests of web pages, but for those whose origins its setting cors_origins names",
	}
}

// loopbackHost says whether a Host header names this host and nothing else can.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
