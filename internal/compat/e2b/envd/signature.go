package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Signature returns that of a URL of a file: whoever has it may read or write ("write") path as user
// until the time exp in Unix seconds, for ever with "".
func Signature(token, path, operation, user, exp string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if exp != "" {
		text += ":" + exp
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Signed says why a URL's signature does not hold for a sandbox with the token, nil when it does.
func Signed(token, operation string, query url.Values, now time.Time) error {
	given := query.Get("signature")
	if given == "" {
		return &httpError{http.StatusUnauthorized, "missing signature query parameter"}
	}
	exp := query.Get("signature_expiration")
	want := Signature(token, query.Get("path"), operation, query.Get("username"), exp)
	if subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1 {
		return &httpError{http.StatusUnauthorized, "invalid signature"}
	}
	if exp == "" {
		return nil
	}
	until, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || until < now.Unix() {
		return &httpError{http.StatusUnauthorized, "signature is already expired"}
	}
	return nil
}

// maySee says why a request may not read or write files: it needs the token or a signature.
func maySee(r *http.Request, c *call, operation string) error {
	if authorized(r, c.Token) {
		return nil
	}
	return Signed(c.Token, operation, r.URL.Query(), time.Now())
}
