//go:build integration

package app_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRealPythonKeepsStateAcrossCalls(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython("x = 41; import json; f = open('/tmp/open', 'w')")
	if r := b.python("x + 1"); r.mainText != "42" || r.stdout != "" {
		t.Errorf("x + 1 gave result %q and output %q, want 42 and none", r.mainText, r.stdout)
	}
	if got := b.mustPython("f.write('carried'); f.close(); print(json.dumps(open('/tmp/open').read()))"); got != "\"carried\"\n" {
		t.Errorf("open file and import gave %q", got)
	}
	if got := b.mustPython("import asyncio; await asyncio.sleep(0.01); print('awaited')"); got != "awaited\n" {
		t.Errorf("top-level await gave %q", got)
	}
	if got := b.mustPython("import subprocess, os; os.write(1, b'raw\\n'); subprocess.run(['echo', 'child']); print('last')"); got != "raw\nchild\nlast\n" {
		t.Errorf("C-level and child output gave %q", got)
	}
}

func TestRealBashIsAFreshProcess(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustBash("export LOST=1; cd /tmp")
	if got := b.mustBash("echo \"${LOST:-none} $PWD $HOME $(id -un)\""); got != "none /root /root root\n" {
		t.Errorf("second bash call saw %q", got)
	}
	if r := b.bash("echo out; echo err >&2; exit 7"); r.code != 7 || r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("got %+v", r)
	}
	if r := b.bash("kill -9 $$"); r.code != 137 || r.reason != "signaled" {
		t.Errorf("a shell that kills itself gave %+v", r)
	}
}

func TestRealFailuresOfCodeAreHonest(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython("keep = 1")
	if r := b.python("def f(): return 1/0\nf()"); r.code != 1 || r.errorName != "ZeroDivisionError" || !strings.Contains(r.stderr, "in f") {
		t.Errorf("an exception gave %+v", r)
	}
	if r := b.python("import sys; sys.exit(3)"); r.code != 3 {
		t.Errorf("sys.exit(3) gave %+v", r)
	}
	if r := b.python("input()"); r.code == 0 {
		t.Errorf("input() gave %+v, want an error", r)
	}
	begin := time.Now()
	r := b.run("python", "import time\nwhile True: time.sleep(60)", obj{"timeout_s": 1})
	if r.reason != "timeout" || time.Since(begin) > 10*time.Second {
		t.Errorf("a timeout gave %+v after %s", r, time.Since(begin))
	}
	if got := b.mustPython("print(keep)"); got != "1\n" {
		t.Errorf("after an interrupt the state is %q", got)
	}
	if r := b.python("import os; os._exit(5)"); r.reason != "interpreter_died" {
		t.Errorf("os._exit gave %+v", r)
	}
	if r := b.python("print('again', 'keep' in globals())"); r.code != 0 || !strings.Contains(r.stdout, "again False") {
		t.Errorf("after the interpreter's death: %+v", r)
	}
	r = b.python("import ctypes; ctypes.string_at(0)")
	if r.reason != "interpreter_died" || b.mustPython("print(2)") == "" {
		t.Errorf("a segfault gave %+v", r)
	}
}

func TestRealMachineHasItsOwnKernelAndShape(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"memory_mb": 2048, "vcpus": 1, "disk_mb": 8192, "env": obj{"GREETING": "hé llo\nworld"}})
	if got := b.mustBash("nproc"); got != "1\n" {
		t.Errorf("nproc says %q, want 1", got)
	}
	mem, err := strconv.Atoi(strings.TrimSpace(b.mustBash("awk '/MemTotal/{print int($2/1024)}' /proc/meminfo")))
	if err != nil || mem < 1850 || mem > 2048 {
		t.Errorf("the guest has %d MB (%v), want about 2048", mem, err)
	}
	disk, err := strconv.Atoi(strings.TrimSpace(b.mustBash("df -m --output=size / | tail -1")))
	if err != nil || disk < 7400 || disk > 8192 {
		t.Errorf("the guest's disk has %d MB (%v), want about 8192", disk, err)
	}
	for _, where := range []string{
		b.mustPython("import os; print(os.environ['GREETING'])"),
		b.mustBash("echo \"$GREETING\""),
		b.mustPython("import subprocess; print(subprocess.run(['printenv', 'GREETING'], capture_output=True, text=True).stdout, end='')"),
	} {
		if where != "hé llo\nworld\n" {
			t.Errorf("the environment given at create is %q", where)
		}
	}
	if onGVisor() {
		if got := b.mustBash("uname -r; mount | grep ' on / ' | cut -d' ' -f5"); got != "4.19.0-gvisor\noverlay\n" {
			t.Errorf("kernel and root filesystem: %q", got)
		}
		return // it has no modules
	}
	if got := b.mustBash("mount | grep ' on / ' | cut -d' ' -f5; ls /lib/modules/$(uname -r)/kernel/drivers/net/wireguard/"); got != "ext4\nwireguard.ko\n" {
		t.Errorf("root filesystem and modules: %q", got)
	}
	if got := b.mustBash("modprobe wireguard && modprobe fuse && modprobe overlay && modprobe nf_tables && echo loaded"); got != "loaded\n" {
		t.Errorf("modules: %q", got)
	}
}

func TestRealUsersAndSudo(t *testing.T) {
	b := realServer(t).create(t, nil)
	for user, want := range map[string]string{"root": "0 /root\n", "user": "1000 /home/user\n", "sandbox": "1001 /home/sandbox\n"} {
		r := b.run("bash", "echo $(id -u) $HOME; touch ~/mine; sudo -n id -u >/dev/null", obj{"user": user})
		if r.code != 0 || r.stdout != want {
			t.Errorf("user %s: %+v, want %q", user, r, want)
		}
	}
	if r := b.run("bash", "id", obj{"user": "nobody-such"}); r.code == 0 {
		t.Errorf("an unknown user ran: %+v", r)
	}
}

func TestRealSiblingsDiffer(t *testing.T) {
	s := realServer(t)
	const probe = "import os, uuid, random, socket, platform; " +
		"print(os.urandom(8).hex(), uuid.uuid4(), random.random(), socket.gethostname(), open('/etc/machine-id').read().strip(), platform.node())"
	a := strings.Fields(s.create(t, nil).mustPython(probe))
	b := strings.Fields(s.create(t, nil).mustPython(probe))
	for n, what := range []string{"os.urandom", "uuid4", "random.random", "hostname", "machine-id", "platform.node"} {
		if a[n] == b[n] {
			t.Errorf("two sandboxes have the same %s: %s", what, a[n])
		}
	}
}

func TestRealClockIsRightAtTheFirstCall(t *testing.T) {
	b := realServer(t).create(t, nil)
	before := time.Now()
	out := b.mustPython("import time; print(time.time())")
	after := time.Now()
	guest, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if err != nil {
		t.Fatal(err)
	}
	const slack = 0.05
	lo, hi := float64(before.UnixNano())/1e9-slack, float64(after.UnixNano())/1e9+slack
	if guest < lo || guest > hi {
		t.Errorf("the guest's clock is off by %.3f s", math.Min(math.Abs(guest-lo), math.Abs(guest-hi)))
	}
}

func TestRealFilesRoundTrip(t *testing.T) {
	s := realServer(t)
	b := s.create(t, nil)
	data := make([]byte, 64<<20)
	rand.Read(data)
	sum := sha256.Sum256(data)
	s.call(t, "PUT", b.path("/files?path=/data/sub/big.bin&parents=true"), bytes.NewReader(data), nil)
	if got := b.mustBash("sha256sum /data/sub/big.bin | cut -d' ' -f1"); strings.TrimSpace(got) != hex.EncodeToString(sum[:]) {
		t.Error("the guest has other bytes than were uploaded")
	}
	status, back := s.do(t, "GET", b.path("/files?path=/data/sub/big.bin"), nil)
	if status != 200 || sha256.Sum256(back) != sum {
		t.Errorf("the download differs (%d, %d bytes)", status, len(back))
	}
	// A relative path starts where the user's code does.
	s.call(t, "PUT", b.path("/files?path=data.csv"), strings.NewReader("a,b\n1,2\n"), nil)
	if got := b.mustPython("print(open('data.csv').read(), end='')"); got != "a,b\n1,2\n" {
		t.Errorf("a relative upload reads %q in Python", got)
	}
	for path, want := range map[string]string{
		"/files?path=/no/such":                 "404 file_not_found",
		"/files?path=/root":                    "409 is_a_directory",
		"/files?path=/etc/shadow&user=sandbox": "403 permission_denied",
	} {
		status, body := s.do(t, "GET", b.path(path), nil)
		var e struct{ Code string }
		json.Unmarshal(body, &e)
		if got := fmt.Sprint(status, " ", e.Code); got != want {
			t.Errorf("GET %s: %s, want %s", path, got, want)
		}
	}
}

func TestRealParallelSandboxesAreIndependent(t *testing.T) {
	s := realServer(t)
	var wg sync.WaitGroup
	for n := range 6 {
		b := s.create(t, nil)
		wg.Go(func() {
			b.mustPython(fmt.Sprintf("x = %d; open('/root/x', 'w').write('%d')", n, n))
			if got := b.mustPython("print(x, open('/root/x').read())"); got != fmt.Sprintf("%d %d\n", n, n) {
				t.Errorf("sandbox %d sees %q", n, got)
			}
		})
	}
	wg.Wait()
}

func TestRealProgramsStreamAndTakeInput(t *testing.T) {
	s := realServer(t)
	b := s.create(t, nil)
	events := s.stream(t, b.path("/processes"), obj{"argv": []string{"cat"}, "stdin": true})
	started := <-events
	if started.Type != "started" || started.ProcessID == "" {
		t.Fatalf("first event %+v", started)
	}
	in := b.path("/processes/" + started.ProcessID + "/stdin")
	s.call(t, "POST", in, strings.NewReader("hello "), nil)
	var text string
	for e := range events {
		if e.Type == "stdout" {
			json.Unmarshal(e.Data, &text)
			break
		}
	}
	if text != "hello " {
		t.Errorf("cat answered %q before its input ended", text)
	}
	s.call(t, "POST", in+"?eof=true", strings.NewReader("world"), nil)
	var last event
	for e := range events {
		last = e
	}
	if last.Type != "exit" || string(last.Data) != "0" {
		t.Errorf("last event %+v, want exit 0", last)
	}
}
