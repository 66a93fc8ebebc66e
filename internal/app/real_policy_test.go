//go:build integration

package app_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// tryPorts is Python that tries HTTP at places, which follow as a list of "host:port".
const tryPorts = `
import http.client, socket
def attempt(place):
    try:
        c = http.client.HTTPConnection(place, timeout=10)
        c.request('GET', '/')
        return c.getresponse().read().decode()
    except ConnectionRefusedError:
        return 'refused'
    except OSError as e:
        return type(e).__name__
for place in %q.split():
    print(attempt(place))`

func (b *box) attempts(places ...string) string {
	b.t.Helper()
	return strings.ReplaceAll(strings.TrimSpace(b.mustPython(fmt.Sprintf(tryPorts, strings.Join(places, " ")))), "\n", " ")
}

// denials are the events of a sandbox that say what its network refused.
func (b *box) denials() []map[string]string {
	b.t.Helper()
	var list []map[string]string
	for _, e := range b.history() {
		if e.Type == "egress_denied" {
			list = append(list, e.Data)
		}
	}
	return list
}

func (b *box) awaitDenial(want map[string]string) {
	b.t.Helper()
	eventually(b.t, 30*time.Second, fmt.Sprintf("the denial %v is an event", want), func() bool {
		for _, got := range b.denials() {
			same := true
			for k, v := range want {
				same = same && got[k] == v
			}
			if same {
				return true
			}
		}
		return false
	})
}

// TestRealEgressPolicyOverTheAPI has a policy from the create on, changes it while the
// machine runs, and finds it in force after the server was killed.
func TestRealEgressPolicyOverTheAPI(t *testing.T) {
	private := newPrivateNet(t, "ramet-test-p", "10.213.0")
	var places, ports []string
	for range 2 {
		ln := private.listen(t)
		serveHTTP(t, ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		places, ports = append(places, ln.Addr().String()), append(ports, port)
	}
	host, _, _ := net.SplitHostPort(places[0])

	home := freshHome(t)
	first, process := serverProcess(t, home, 1)
	eventually(t, 2*time.Minute, "a machine is ready in the pool", func() bool {
		_, body := first.do(t, "GET", "/v1/capacity", nil)
		return bytes.Contains(body, []byte(`"ready":1`))
	})
	b := first.make(t, obj{"egress_policy": obj{"allow": []string{places[0], "allowed.test"}}})
	if got := b.attempts(places[0], places[1]); got != "reached refused" {
		t.Fatalf("with an allow list the two servers say %q", got)
	}
	b.awaitDenial(map[string]string{"protocol": "tcp", "ip": host, "port": ports[1], "rule": "allow list"})
	if got := b.bash("getent hosts denied.test"); got.stdout != "" {
		t.Errorf("a name that is not in the list resolves: %+v", got)
	}
	b.awaitDenial(map[string]string{"protocol": "dns", "host": "denied.test", "rule": "allow list"})
	if n := len(b.denials()); n > 4 {
		t.Errorf("%d denials: %v", n, b.denials())
	}

	// A change is in force at once, also for a connection that is open.
	b.mustPython(fmt.Sprintf("open_one = socket.create_connection((%q, %s))", host, ports[0]))
	deny := obj{"egress": true, "egress_policy": obj{"deny": []string{places[0]}}}
	b.s.call(t, "PUT", b.path("/egress"), deny, nil)
	if got := b.python("open_one.settimeout(20); open_one.recv(1)"); got.errorName != "ConnectionResetError" {
		t.Errorf("the open connection: %+v", got)
	}
	if got := b.attempts(places[0], places[1]); got != "refused reached" {
		t.Errorf("with a deny list the two servers say %q", got)
	}
	b.awaitDenial(map[string]string{"protocol": "tcp", "ip": host, "port": ports[0], "rule": "deny " + places[0]})

	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	process.Wait()
	b = b.on(ownServer(t, home, nil))
	if got := b.attempts(places[0], places[1]); got != "refused reached" {
		t.Errorf("after the restart the two servers say %q", got)
	}
	var sb struct {
		Egress bool `json:"egress"`
		Policy struct {
			Deny []string `json:"deny"`
		} `json:"egress_policy"`
	}
	b.s.call(t, "GET", b.path(""), nil, &sb)
	if !sb.Egress || len(sb.Policy.Deny) != 1 || sb.Policy.Deny[0] != places[0] {
		t.Errorf("after the restart its policy is %+v", sb)
	}
	b.s.call(t, "PUT", b.path("/egress"), obj{"egress": false, "egress_policy": obj{}}, nil)
	if got := b.attempts(places...); got != "refused refused" {
		t.Errorf("with a closed network the two servers say %q", got)
	}
	b.awaitDenial(map[string]string{"protocol": "tcp", "port": ports[1], "rule": "egress: false"})
	b.delete()
}
