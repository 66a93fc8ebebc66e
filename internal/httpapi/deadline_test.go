package httpapi_test

import (
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/httpapi"
)

func TestDeadlinesOfTheAPI(t *testing.T) {
	e := start(t, options{})
	sb, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"ends_in_s":3600,"at_end":"hibernate"}`)
	if sb.EndsAt == nil || time.Until(*sb.EndsAt).Round(time.Minute) != time.Hour || *sb.AtEnd != "hibernate" || sb.ExpiresAt != nil {
		t.Errorf("made: %v %v %v", sb.EndsAt, sb.AtEnd, sb.ExpiresAt)
	}
	path := "/v1/sandboxes/" + sb.Id
	moved, _ := want[rametv1.Sandbox](e, 200, "PATCH", path, `{"ends_in_s":60,"at_end":"delete"}`)
	if moved.EndsAt == nil || time.Until(*moved.EndsAt).Round(time.Minute) != time.Minute || moved.ExpiresAt == nil || !moved.ExpiresAt.Equal(*moved.EndsAt) {
		t.Errorf("moved: %v, expires %v", moved.EndsAt, moved.ExpiresAt)
	}
	kept, _ := want[rametv1.Sandbox](e, 200, "PATCH", path, `{"metadata":{"a":"b"}}`)
	if kept.EndsAt == nil || !kept.EndsAt.Equal(*moved.EndsAt) {
		t.Errorf("another change made it %v", kept.EndsAt)
	}
	free, _ := want[rametv1.Sandbox](e, 200, "PATCH", path, `{"ends_in_s":0}`)
	if free.EndsAt != nil || free.AtEnd != nil {
		t.Errorf("taken away: %v %v", free.EndsAt, free.AtEnd)
	}
	for body, code := range map[string]string{
		`{"ends_in_s":-1}`: "invalid_timeout", `{"ends_in_s":31622401}`: "invalid_timeout", `{"at_end":"explode"}`: "invalid_at_end",
		`{"ends_in_s":"1"}`: "invalid_type",
	} {
		e.refused(400, code, "PATCH", path, body)
		e.refused(400, code, "POST", "/v1/sandboxes", body)
	}
}

func TestInfoTellsThePreviewDomain(t *testing.T) {
	e := start(t, options{api: func(c *httpapi.Config) { c.Info.PreviewDomain = "localhost:7070" }})
	if info, _ := want[rametv1.Info](e, 200, "GET", "/v1/info", ""); info.PreviewDomain == nil || *info.PreviewDomain != "localhost:7070" {
		t.Errorf("it is %v", info.PreviewDomain)
	}
}

func TestKeysOfOtherShapes(t *testing.T) {
	e := start(t, options{})
	key, _ := want[rametv1.KeyCreated](e, 200, "POST", "/v1/keys", `{"format":"e2b"}`)
	if len(key.Key) != 4+64 || strings.Trim(strings.TrimPrefix(key.Key, "e2b_"), "0123456789abcdef") != "" {
		t.Errorf("the key is %q", key.Key)
	}
	if res, _ := e.do("GET", "/v1/sandboxes", "", "Authorization", "Bearer "+key.Key); res.StatusCode != 200 {
		t.Errorf("it gets %d", res.StatusCode)
	}
	e.refused(400, "invalid_format", "POST", "/v1/keys", `{"format":"other"}`)
}
