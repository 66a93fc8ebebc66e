package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

func TestWithoutWake(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("X-Ramet-Wake"))
		io.WriteString(w, "{}")
	})
	for _, ctx := range []context.Context{t.Context(), WithoutWake(t.Context()), WithoutWake(context.WithoutCancel(t.Context()))} {
		if _, err := c.Diff(ctx, "sbx_a", v1.DiffRequest{Other: "sbx_b"}); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(got) != "[ never never]" {
		t.Errorf("%q", got)
	}
}

// Lists are asked for page by page, and no further than they are read.
func TestCheckpointsComeInPages(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cursor := r.URL.Query().Get("cursor")
		asked = append(asked, r.URL.Path+" "+cursor)
		switch cursor {
		case "":
			io.WriteString(w, `{"checkpoints":[{"id":"1"},{"id":"2"}],"next_cursor":"b"}`)
		case "b":
			io.WriteString(w, `{"checkpoints":[{"id":"3"}],"next_cursor":"c"}`)
		default:
			w.WriteHeader(500)
		}
	})
	var ids []string
	for ckp, err := range c.Checkpoints(t.Context(), "sbx_a") {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, ckp.Id); len(ids) == 3 {
			break
		}
	}
	if fmt.Sprint(ids, asked) != "[1 2 3] [/v1/sandboxes/sbx_a/checkpoints  /v1/sandboxes/sbx_a/checkpoints b]" {
		t.Errorf("%v %v", ids, asked)
	}
	n := 0
	for _, err := range c.Checkpoints(t.Context(), "") {
		if n++; err != nil {
			break
		}
	}
	if n != 4 || asked[len(asked)-1] != "/v1/checkpoints c" {
		t.Errorf("%d entries, %v", n, asked)
	}
}
