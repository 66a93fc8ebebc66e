package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// EventFilter selects events.
type EventFilter struct {
	Since   string // an event's id or a time; "" is everything that is kept
	Sandbox string // "" is all
	Follow  bool   // go on with what happens
}

// maxEventLine bounds one line of an event stream, in bytes.
const maxEventLine = 1 << 20

// Events yields what happened to sandboxes, and with Follow what happens, until the
// stream breaks or ctx ends. It ends after the first error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[*v1.SandboxEvent, error] {
	return func(yield func(*v1.SandboxEvent, error) bool) {
		resp, err := c.check(c.api.StreamEvents(ctx, &v1.StreamEventsParams{
			Since: optional(f.Since), Sandbox: optional(f.Sandbox), Follow: &f.Follow,
		}))
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, maxEventLine)
		typ, data := "", ""
		for sc.Scan() {
			name, value, _ := strings.Cut(sc.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case sc.Text() == "":
				if data != "" {
					e, err := parseEvent(typ, data)
					if !yield(e, err) || err != nil {
						return
					}
				}
				typ, data = "", ""
			case name == "event":
				typ = value
			case name == "data":
				data += value
			}
		}
		err = sc.Err()
		if err == nil && f.Follow {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			yield(nil, fmt.Errorf("follow the events of %s: %w", c.url, cause(err)))
		}
	}
}

func parseEvent(typ, data string) (*v1.SandboxEvent, error) {
	switch typ {
	case "error":
		var e v1.Error
		if json.Unmarshal([]byte(data), &e) != nil {
			return nil, errors.New("the server ended the events with an error that cannot be read")
		}
		return nil, &Error{Code: e.Code, Message: e.Error, RequestID: e.RequestId}
	case "gap":
		return &v1.SandboxEvent{Type: typ, Reason: "older events are not kept any more"}, nil
	}
	e := new(v1.SandboxEvent)
	if err := json.Unmarshal([]byte(data), e); err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	return e, nil
}
