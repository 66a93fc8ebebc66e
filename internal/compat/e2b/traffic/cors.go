package traffic

import (
	"net/http"
	"strings"
)

const (
	methods = "HEAD, GET, POST, PUT, PATCH, DELETE"
	// exposed are the headers that scripts of a page may read.
	exposed = "Connect-Content-Encoding, Connect-Accept-Encoding, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options, " +
		"X-Next-Token, X-Total-Running, X-Request-Id, Retry-After, Should-Retry"
	// preflightAge is how long a browser may remember an answer, in seconds.
	preflightAge = "7200"
)

// AllowOrigins lets pages of any origin call: what entitles a caller is a token that no browser
// adds by itself. It answers preflight requests, and says whether this was one.
func AllowOrigins(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", exposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", methods)
	// A star does not stand for Authorization, so what is asked for is repeated.
	want := strings.Join(r.Header.Values("Access-Control-Request-Headers"), ", ")
	if want == "" {
		want = "*"
	}
	h.Set("Access-Control-Allow-Headers", want)
	h.Set("Access-Control-Max-Age", preflightAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
