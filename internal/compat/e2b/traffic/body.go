package traffic

import (
	"io"
	"net/http"
	"time"
)

// LimitReads gives each read of a request's body a deadline: an upload may take as long as it
// moves, but one that stands still does not hold its connection for ever.
func LimitReads(w http.ResponseWriter, r *http.Request, each time.Duration) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &slowBody{ReadCloser: r.Body, conn: http.NewResponseController(w), each: each}
	}
}

type slowBody struct {
	io.ReadCloser
	conn *http.ResponseController
	each time.Duration
}

// Read reads. Between reads there is no deadline: whoever reads slowly is not the client, and a deadline
// that passes while an answer is under way would look like the client's leaving.
func (b *slowBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(time.Now().Add(b.each)) // fails only for connections that have none
	n, err := b.ReadCloser.Read(p)
	_ = b.conn.SetReadDeadline(time.Time{})
	return n, err
}
