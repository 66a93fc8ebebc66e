package e2b

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"

	"ramet.dev/ramet/internal/sandbox"
)

// Tokens are made of the server's seed and the sandbox's id. They need no record, survive
// restarts and pauses, and a fork has others than its parent.

// envdToken entitles to everything that E2B's services in a sandbox can do.
func (s *Server) envdToken(id sandbox.ID) string { return s.token(id.Alphanumeric()) }

// trafficToken entitles to reach the ports of a sandbox whose ports are private.
func (s *Server) trafficToken(id sandbox.ID) string {
	return s.token("sandbox-traffic-" + id.Alphanumeric())
}

func (s *Server) token(of string) string {
	mac := hmac.New(sha256.New, s.cfg.Seed)
	mac.Write([]byte(of))
	return hex.EncodeToString(mac.Sum(nil))
}

// same compares in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signedWith says whether a link to a file was signed with a sandbox's token. Whether its time
// is over the service says that serves it.
func signedWith(token, method string, q url.Values) bool {
	operation := "read"
	if method == http.MethodPost {
		operation = "write"
	}
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if end := q.Get("signature_expiration"); end != "" {
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	return same(q.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
}
