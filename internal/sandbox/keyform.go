package sandbox

import (
	"encoding/hex"
	"strings"
)

// E2B's clients take keys of one shape only: e2b_ and hexadecimal digits. Any key of ours can
// be written so.
const (
	hexKeyPrefix = "e2b_"
	keyPrefix    = "rmt_" // of the secrets that we make
)

// HexKey returns a key in the shape that E2B's clients take.
func HexKey(secret string) string {
	if !strings.HasPrefix(secret, keyPrefix) {
		return secret
	}
	return hexKeyPrefix + hex.EncodeToString([]byte(secret))
}

// PlainKey returns the key that HexKey was made of, and any other key as it is.
func PlainKey(secret string) string {
	h, ok := strings.CutPrefix(secret, hexKeyPrefix)
	if !ok {
		return secret
	}
	if b, err := hex.DecodeString(h); err == nil && strings.HasPrefix(string(b), keyPrefix) {
		return string(b)
	}
	return secret
}
