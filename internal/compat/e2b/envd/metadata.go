package envd

import (
	"fmt"
	"net/http"
	"strings"
)

// metadataHeader is what the names of headers begin with that become a file's metadata.
const metadataHeader = "X-Metadata-"

// Metadata becomes extended attributes, which share one block of the filesystem. In bytes.
const (
	maxMetadataKey = 200
	maxMetadata    = 3 << 10
)

// metadata reads what an upload's headers note at its files, as extended attributes. Keys
// are in lower case: names of headers have no case.
func metadata(h http.Header) (map[string]string, error) {
	var out map[string]string
	size := 0
	for name, values := range h {
		if len(name) < len(metadataHeader) || !strings.EqualFold(name[:len(metadataHeader)], metadataHeader) {
			continue
		}
		key, value := strings.ToLower(name[len(metadataHeader):]), strings.Join(values, ", ")
		switch {
		case key == "" || len(key) > maxMetadataKey || strings.ContainsFunc(key, func(c rune) bool { return !tokenChar(c) }):
			return nil, badRequest("invalid metadata key %q: use up to %d letters, digits and -._", shorten(key), maxMetadataKey)
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
			return nil, badRequest("invalid metadata value of %q: use printable ASCII", key)
		}
		if size += len(key) + len(value) + 32; size > maxMetadata {
			return nil, badRequest("the metadata is too long: names and values can have about %d bytes together", maxMetadata)
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[attributePrefix+key] = value
	}
	return out, nil
}

// tokenChar says whether a header's name can have the character.
func tokenChar(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}
