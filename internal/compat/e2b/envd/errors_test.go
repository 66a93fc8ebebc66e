package envd

import (
	"testing"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// Each failure of files has its own answer, of both protocols. Clients tell resource_exhausted as a limit
// on their calls, which a full disk is not.
func TestEachFailureHasItsOwnAnswer(t *testing.T) {
	for _, c := range []struct {
		kind   sandbox.Kind
		code   string
		rpc    connect.Code
		status int
	}{
		{sandbox.NotFound, "file_not_found", connect.CodeNotFound, 404},
		{sandbox.Conflict, "is_a_directory", connect.CodeInvalidArgument, 400},
		{sandbox.Conflict, "not_a_directory", connect.CodeInvalidArgument, 400},
		{sandbox.Conflict, "directory_not_empty", connect.CodeFailedPrecondition, 400},
		{sandbox.Conflict, "file_exists", connect.CodeAlreadyExists, 400},
		{sandbox.Invalid, "permission_denied", connect.CodePermissionDenied, 403},
		{sandbox.Exhausted, "no_space", connect.CodeFailedPrecondition, 507},
		{sandbox.Exhausted, "file_too_large", connect.CodeFailedPrecondition, 413},
		{sandbox.Exhausted, "too_many_watchers", connect.CodeResourceExhausted, 429},
		{sandbox.NotFound, "sandbox_not_found", connect.CodeUnavailable, 502},
		{sandbox.Internal, "anything", connect.CodeInternal, 500},
	} {
		v, message := judge(sandbox.Errorf(c.kind, c.code, "why"))
		if v.code != c.rpc || v.status != c.status || message == "" {
			t.Errorf("%s: %v %d %q, want %v %d", c.code, v.code, v.status, message, c.rpc, c.status)
		}
	}
}

func TestMissingOutputIsToldInItsPlace(t *testing.T) {
	for pty, want := range map[bool]string{
		false: "a\n[ramet] 7 bytes of output were dropped here\nb", true: "a\r\n[ramet] 7 bytes of output were dropped here\r\nb",
	} {
		got := ""
		r := &relay{pty: pty, begun: true, send: func(e *envdv1.ProcessEvent) error {
			got += string(e.GetData().GetStdout()) + string(e.GetData().GetStderr()) + string(e.GetData().GetPty())
			return nil
		}}
		for _, e := range []*agentv1.Event{
			{Kind: &agentv1.Event_Stdout{Stdout: []byte("a")}},
			{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: 7}}},
			{Kind: &agentv1.Event_Stdout{Stdout: []byte("b")}},
		} {
			if done, err := r.pass(e); done || err != nil {
				t.Fatal(done, err)
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
