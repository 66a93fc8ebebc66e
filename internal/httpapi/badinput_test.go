package httpapi_test

import (
	"strings"
	"testing"
)

func TestBadBodies(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	sandboxes, exec := "/v1/sandboxes", "/v1/sandboxes/"+id+"/exec"
	processes := "/v1/sandboxes/" + id + "/processes"
	big := `{"env":{"A":"` + strings.Repeat("x", 2<<20) + `"}}`
	for _, c := range []struct {
		name, path, body string
		status           int
		code, sentence   string // the sentence in part
	}{
		{"malformed", sandboxes, `{"template":`, 400, "invalid_json", "not valid JSON"},
		{"list", sandboxes, `[]`, 400, "invalid_json", "has to be a JSON object"},
		{"null", sandboxes, `null`, 400, "invalid_json", "has to be a JSON object"},
		{"string", sandboxes, `"x"`, 400, "invalid_json", "has to be a JSON object"},
		{"trailing", sandboxes, `{} x`, 400, "invalid_json", "not valid JSON"},
		{"two objects", sandboxes, `{}{}`, 400, "invalid_json", "not valid JSON"},
		{"not UTF-8", sandboxes, "{\"template\":\"\xff\"}", 400, "invalid_json", "UTF-8"},
		{"too large", sandboxes, big, 413, "body_too_large", "1048576 bytes"},
		{"unknown field", sandboxes, `{"memory":512}`, 400, "unknown_field", `"memory"`},
		{"other case", sandboxes, `{"Template":"default"}`, 400, "unknown_field", `"Template"`},
		{"wrong type", sandboxes, `{"memory_mb":"512"}`, 400, "invalid_type", "memory_mb has to be a whole number"},
		{"fraction", sandboxes, `{"memory_mb":512.5}`, 400, "invalid_type", "memory_mb has to be a whole number"},
		{"huge", sandboxes, `{"memory_mb":1e30}`, 400, "invalid_type", "memory_mb"},
		{"negative memory", sandboxes, `{"memory_mb":-512}`, 400, "invalid_size", "more than 0"},
		{"zero memory", sandboxes, `{"memory_mb":0}`, 400, "invalid_size", "more than 0"},
		{"little memory", sandboxes, `{"memory_mb":256}`, 400, "invalid_memory", "512 to 16384"},
		{"much memory", sandboxes, `{"memory_mb":32768}`, 400, "invalid_memory", "512 to 16384"},
		{"odd memory", sandboxes, `{"memory_mb":1000}`, 400, "invalid_memory", "multiple of 128"},
		{"negative ram", sandboxes, `{"ram_mib":-1}`, 400, "invalid_memory", "ram_mib"},
		{"huge ram", sandboxes, `{"ram_mib":9223372036854775807}`, 400, "invalid_memory", "ram_mib"},
		{"two names of memory", sandboxes, `{"ram_mib":512,"memory_mb":512}`, 400, "two_names", "one of them"},
		{"two names of disk", sandboxes, `{"rootfs_gb":4,"disk_mb":4096}`, 400, "two_names", "one of them"},
		{"huge rootfs", sandboxes, `{"rootfs_gb":9007199254740993}`, 400, "invalid_disk", "rootfs_gb"},
		{"three vcpus", sandboxes, `{"vcpus":3}`, 400, "invalid_vcpus", "1, 2, 4 or 8"},
		{"negative vcpus", sandboxes, `{"vcpus":-1}`, 400, "invalid_size", "more than 0"},
		{"isolation of another kind", sandboxes, `{"isolation":"vm"}`, 400, "invalid_isolation", "kvm, gvisor or emulated"},
		{"isolation that is not here", sandboxes, `{"isolation":"kvm"}`, 400, "isolation_unavailable", "is emulated, not kvm"},
		{"small disk", sandboxes, `{"disk_mb":100}`, 400, "invalid_disk", "4096"},
		{"egress is a word", sandboxes, `{"egress":"no"}`, 400, "invalid_type", "egress has to be true or false"},
		{"no seeds without a checkpoint", sandboxes, `{"reseed":false}`, 400, "reseed_without_checkpoint", "leave it out"},
		{"no checkpoint's id", sandboxes, `{"checkpoint":"before"}`, 404, "checkpoint_not_found", "checkpoint not found"},
		{"negative timeout", sandboxes, `{"timeout_seconds":-1}`, 400, "invalid_timeout", "negative"},
		{"unknown template", sandboxes, `{"template":"nope"}`, 404, "template_not_found", "nope"},
		{"template with dots", sandboxes, `{"template":"../x"}`, 400, "invalid_template_name", "not a name"},
		{"template with NUL", sandboxes, `{"template":"a\u0000"}`, 400, "invalid_template_name", "not a name"},
		{"template with newline", sandboxes, `{"template":"a\nb"}`, 400, "invalid_template_name", "not a name"},
		{"env of numbers", sandboxes, `{"env":{"A":1}}`, 400, "invalid_type", "env"},
		{"env with =", sandboxes, `{"env":{"A=B":"1"}}`, 400, "invalid_env", "A=B"},
		{"env without name", sandboxes, `{"env":{"":"1"}}`, 400, "invalid_env", "empty"},
		{"env with NUL", sandboxes, `{"env":{"A":"\u0000"}}`, 400, "invalid_env", "NUL"},
		{"large env", sandboxes, `{"env":{"A":"` + strings.Repeat("x", 70000) + `"}}`, 400, "invalid_env", "bytes"},
		{"metadata with newline", sandboxes, `{"metadata":{"a\nb":"1"}}`, 400, "invalid_metadata", "control"},
		{"long metadata", sandboxes, `{"metadata":{"a":"` + strings.Repeat("x", 5000) + `"}}`, 400, "invalid_metadata", "4096"},

		{"no body", exec, ``, 400, "invalid_json", "empty"},
		{"no code", exec, `{}`, 400, "invalid_code", "code is missing"},
		{"code is a number", exec, `{"code":1}`, 400, "invalid_type", "code has to be a string"},
		{"unknown language", exec, `{"code":"1","language":"cobol"}`, 400, "invalid_language", "python, javascript or bash"},
		{"unknown format", exec, `{"code":"1","format":"xml"}`, 400, "invalid_format", "lines or chunks"},
		{"negative run timeout", exec, `{"code":"1","timeout_s":-1}`, 400, "invalid_timeout", "timeout_s"},
		{"huge run timeout", exec, `{"code":"1","timeout_s":1e300}`, 400, "invalid_timeout", "timeout_s"},
		{"cwd with NUL", exec, `{"code":"1","cwd":"/\u0000"}`, 400, "invalid_path", "cwd"},
		{"user with newline", exec, `{"code":"1","language":"bash","user":"a\nb"}`, 400, "invalid_user", "user"},
		{"python as somebody", exec, `{"code":"1","user":"user"}`, 400, "invalid_user", "bash"},

		{"no argv", processes, `{}`, 400, "invalid_argv", "argv is empty"},
		{"empty argv", processes, `{"argv":[]}`, 400, "invalid_argv", "argv is empty"},
		{"empty program", processes, `{"argv":[""]}`, 400, "invalid_argv", "argv is empty"},
		{"argv is a string", processes, `{"argv":"ls"}`, 400, "invalid_type", "argv has to be a list"},
		{"argv with NUL", processes, `{"argv":["a\u0000"]}`, 400, "invalid_argv", "NUL"},
		{"terminal without columns", processes, `{"argv":["true"],"pty":{"columns":0,"rows":24}}`, 400, "invalid_pty", "1 to 65535"},
		{"terminal without rows", processes, `{"argv":["true"],"pty":{"columns":80}}`, 400, "invalid_pty", "1 to 65535"},
		{"huge terminal", processes, `{"argv":["true"],"pty":{"columns":70000,"rows":24}}`, 400, "invalid_pty", "1 to 65535"},
		{"terminal is a word", processes, `{"argv":["true"],"pty":true}`, 400, "invalid_type", "pty has to be an object"},
		{"terminal of pixels", processes, `{"argv":["true"],"pty":{"columns":80,"rows":24,"width":9}}`, 400, "unknown_field", "width"},
		{"tag with newline", processes, `{"argv":["true"],"tag":"a\nb"}`, 400, "invalid_tag", "control"},
		{"code on a terminal", exec, `{"code":"1","pty":{"columns":80,"rows":24}}`, 400, "unknown_field", `"pty"`},
		{"resize to nothing", processes + "/run_x/resize", `{}`, 400, "invalid_pty", "1 to 65535"},
		{"resize to much", processes + "/run_x/resize", `{"columns":80,"rows":70000}`, 400, "invalid_pty", "1 to 65535"},
		{"resize of nothing", processes + "/run_x/resize", `{"columns":80,"rows":24}`, 404, "not_found", "not found"},
		{"no signal", processes + "/run_x/signal", `{}`, 400, "invalid_signal", "SIGINT"},
		{"unknown signal", processes + "/run_x/signal", `{"signal":"SIGFOO"}`, 400, "invalid_signal", "SIGINT"},
		{"signal 0", processes + "/run_x/signal", `{"signal":0}`, 400, "invalid_signal", "SIGINT"},
		{"signal of nothing", processes + "/run_x/signal", `{"signal":2}`, 404, "not_found", "not found"},
		{"stdin of nothing", processes + "/run_x/stdin", `x`, 404, "not_found", "not found"},

		{"mkdir without path", "/v1/sandboxes/" + id + "/files/mkdir", `{}`, 400, "invalid_path", "path is missing"},
		{"move without to", "/v1/sandboxes/" + id + "/files/move", `{"from":"/a"}`, 400, "invalid_path", "to is missing"},
		{"mode is a number", "/v1/sandboxes/" + id + "/files/mkdir", `{"path":"/a","mode":493}`, 400, "invalid_type", "mode has to be a string"},
		{"attributes of nothing", "/v1/sandboxes/" + id + "/files/attributes", `{"path":"/none","mode":"644"}`, 404, "file_not_found", ""},

		{"template without name", "/v1/templates", `{}`, 400, "invalid_template_name", "not a name"},
		{"template named ..", "/v1/templates", `{"name":".."}`, 400, "invalid_template_name", "not a name"},
		{"key name with newline", "/v1/keys", `{"name":"a\nb"}`, 400, "invalid_name", "control"},
		{"long key name", "/v1/keys", `{"name":"` + strings.Repeat("x", 200) + `"}`, 400, "invalid_name", "128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := e.with(t)
			res, body := e.do("POST", c.path, c.body)
			if res.StatusCode != c.status || !strings.Contains(string(body), `"code":"`+c.code+`"`) || !strings.Contains(unescape(string(body)), c.sentence) {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			checkError(t, res, body)
		})
	}
	// Nothing half-made is left behind.
	if n := e.machines.Running(); n != 1 {
		t.Errorf("%d machines run", n)
	}
	if _, body := e.do("GET", "/v1/sandboxes?status=any", ""); strings.Count(string(body), `"id"`) != 1 {
		t.Errorf("records: %s", body)
	}
}

func unescape(s string) string { return strings.ReplaceAll(s, `\"`, `"`) }

func TestBadQueries(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for _, c := range []struct{ path, code string }{
		{"/v1/sandboxes?limit=0", "invalid_limit"},
		{"/v1/sandboxes?limit=-1", "invalid_limit"},
		{"/v1/sandboxes?limit=1001", "invalid_limit"},
		{"/v1/sandboxes?limit=x", "invalid_parameter"},
		{"/v1/sandboxes?cursor=x", "invalid_cursor"},
		{"/v1/sandboxes?cursor=MS54", "invalid_cursor"},
		{"/v1/sandboxes?status=ready", "invalid_status"},
		{"/v1/sandboxes?metadata=x", "invalid_metadata"},
		{"/v1/sandboxes/" + id + "/processes/run_x/stream?from_seq=-1", "invalid_parameter"},
		{"/v1/sandboxes/" + id + "/processes/run_x/stream?from_seq=x", "invalid_parameter"},
	} {
		res, body := e.do("GET", c.path, "")
		if res.StatusCode != 400 || !strings.Contains(string(body), c.code) {
			t.Errorf("%s: %d %s", c.path, res.StatusCode, body)
		}
		checkError(t, res, body)
	}
}

func TestContentTypes(t *testing.T) {
	e := start(t, options{})
	for typ, status := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "nonsense;;": 415,
	} {
		res, body := e.do("POST", "/v1/keys", `{}`, "Content-Type", typ)
		if res.StatusCode != status {
			t.Errorf("%s: %d %s", typ, res.StatusCode, body)
		}
	}
}

func TestUnknownIDsEverywhere(t *testing.T) {
	e := start(t, options{})
	for _, id := range []string{"sbx_00000000000000000000000000000000", "nonsense", "sbx_", "%00", "sbx_0000000000000000000000000000000G"} {
		for _, c := range []struct{ method, path, body string }{
			{"GET", "", ""},
			{"DELETE", "", ""},
			{"POST", "/exec", `{"code":"1"}`},
			{"POST", "/processes", `{"argv":["true"]}`},
			{"GET", "/processes", ""},
			{"GET", "/processes/run_x/stream", ""},
			{"POST", "/processes/run_x/stdin", "x"},
			{"POST", "/processes/run_x/signal", `{"signal":2}`},
			{"POST", "/processes/run_x/resize", `{"columns":80,"rows":24}`},
			{"GET", "/files?path=/a", ""},
			{"PUT", "/files?path=/a", "x"},
			{"DELETE", "/files?path=/a", ""},
			{"GET", "/files/list?path=/a", ""},
			{"GET", "/files/stat?path=/a", ""},
			{"POST", "/files/mkdir", `{"path":"/a"}`},
			{"POST", "/files/move", `{"from":"/a","to":"/b"}`},
			{"POST", "/files/attributes", `{"path":"/a","mode":"644"}`},
			{"GET", "/archive?path=/a", ""},
			{"PUT", "/archive?path=/a", "x"},
			{"GET", "/metrics", ""},
			{"GET", "/console", ""},
		} {
			res, body := e.do(c.method, "/v1/sandboxes/"+id+c.path, c.body)
			if res.StatusCode != 404 || !strings.Contains(string(body), `"error":"sandbox not found"`) {
				t.Errorf("%s %s%s: %d %s", c.method, id, c.path, res.StatusCode, body)
			}
		}
	}
}
