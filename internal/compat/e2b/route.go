package e2b

import (
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/httpapi"
)

// The headers by which clients name a sandbox when a host cannot.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
)

// Route returns the handler of the whole listener: it decides for which surface a request is,
// by its Host, its headers and its path, and gives the rest to the native API.
// httpapi.Server.Around has to be around it.
func (s *Server) Route(native http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostName(r.Host)
		if n, ok := s.namedByHost(host); ok {
			s.serveTraffic(w, r, n)
			return
		}
		if s.namesNoSandbox(host) {
			if id := r.Header.Get(headerSandbox); id != "" {
				if n := namedByHeaders(id, r.Header.Get(headerPort)); !connects(r, n) {
					s.serveTraffic(w, r, n)
					return
				}
			}
			if r.URL.Path == "/files" && r.URL.Query().Get("signature") != "" {
				s.serveSigned(w, r)
				return
			}
		}
		if isControl(r.URL.Path) {
			s.serveControl(w, r)
			return
		}
		native.ServeHTTP(w, r)
	})
}

// connects says that a request is for the control API in spite of the headers that name a sandbox:
// clients of 2025 send them with the call that resumes it, too. What runs at that port has no such paths.
func connects(r *http.Request, n named) bool {
	path, old := strings.CutPrefix(r.URL.Path, "/sandboxes/")
	if !old {
		path, old = strings.CutPrefix(r.URL.Path, "/v2/sandboxes/")
	}
	return old && n.port == traffic.EnvdPort && strings.HasSuffix(path, "/connect") && r.Header.Get("X-API-Key") != ""
}

// serveControl serves the control API.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	httpapi.ShapeErrors(r, s.writeError)
	if allowOrigins(w, r) {
		return
	}
	s.api.ServeHTTP(w, r)
}

// named is a port of a sandbox as a request names it.
type named struct {
	id   string
	port int // 0 when it is none
}

// label is <port>-<id>, and what old clients put behind it.
var label = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]+)(?:-[a-z0-9]+)?$`)

// namedByHost reads <port>-<id>.<anything>. What does not look like an id of ours is one only
// below the domain of this server.
func (s *Server) namedByHost(host string) (named, bool) {
	first, rest, ok := strings.Cut(host, ".")
	m := label.FindStringSubmatch(first)
	if !ok || m == nil {
		return named{}, false
	}
	if _, err := parseID(m[2]); err != nil && !strings.EqualFold(rest, hostName(s.cfg.Domain)) {
		return named{}, false
	}
	return namedByHeaders(m[2], m[1]), true
}

func namedByHeaders(id, port string) named {
	if port == "" {
		return named{id: id, port: traffic.EnvdPort}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		n = 0
	}
	return named{id: id, port: int(n)}
}

// namesNoSandbox says that headers may name one. A host that could itself be a name of a
// sandbox's port may not be turned elsewhere by a header of a page that is shown there.
func (s *Server) namesNoSandbox(host string) bool {
	if host == "localhost" || strings.HasPrefix(host, "sandbox.") || host != "" && host == hostName(s.cfg.Domain) {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil
}

// hostName is a Host without its port, in lower case.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// controlPaths begin the paths of the control API. The native one is below /v1.
var controlPaths = []string{
	"/sandboxes", "/v2", "/v3", "/templates", "/snapshots", "/health", "/teams", "/volumes", "/volumecontent", "/secrets",
	"/access-tokens", "/api-keys", "/nodes", "/admin",
}

func isControl(path string) bool {
	for _, p := range controlPaths {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// allowOrigins lets pages of anywhere call, who need a key or token like everybody, and answers
// the question of a browser whether they may.
func allowOrigins(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Connect-Content-Encoding, Connect-Accept-Encoding, Connect-Protocol-Version, Grpc-Status, Grpc-Message, "+
		"Location, Cache-Control, X-Content-Type-Options, X-Next-Token, X-Total-Running, X-Request-Id, Retry-After, Should-Retry")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE")
	// "*" does not stand for Authorization.
	asked := r.Header.Get("Access-Control-Request-Headers")
	if asked == "" || len(asked) > 4096 {
		asked = "*"
	}
	h.Set("Access-Control-Allow-Headers", asked)
	h.Set("Access-Control-Max-Age", "7200")
	h.Add("Vary", "Access-Control-Request-Headers")
	httpapi.NoteRoute(r, "preflight")
	w.WriteHeader(http.StatusNoContent)
	return true
}
