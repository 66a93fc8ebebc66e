//go:build integration

package app_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestRealLargeMachine(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"vcpus": 4, "memory_mb": 8192, "disk_mb": 65536})
	if got := b.mustBash("nproc"); got != "4\n" {
		t.Errorf("nproc says %q", got)
	}
	number := func(code string) int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(b.mustBash(code)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if mem := number("awk '/MemTotal/{print int($2/1024)}' /proc/meminfo"); mem < 7800 || mem > 8192 {
		t.Errorf("the guest has %d MB", mem)
	}
	if disk := number("df -m --output=size / | tail -1"); disk < 60000 || disk > 65536 {
		t.Errorf("the guest's disk has %d MB", disk)
	}
	// What was plugged in and grown is there, and not only counted. The file's end
	// lies beyond the image that the machine was restored with.
	if got := b.mustPython("b = bytearray(1 << 30)\nb[::4096] = b'x' * (len(b) // 4096)\nprint(b.count(b'x'))"); got != "262144\n" {
		t.Errorf("a gigabyte holds %q", got)
	}
	if got := b.mustBash("fallocate -l 20G /big && printf end | dd of=/big bs=1M seek=20479 conv=notrunc status=none && sync && " + dropCaches() + " && dd if=/big bs=1M skip=20479 count=1 status=none | head -c 3"); got != "end" {
		t.Errorf("the end of a large file reads %q", got)
	}
}

func TestRealSixteenCreatesAtOnce(t *testing.T) {
	s := realServer(t)
	const n = 16
	var wg sync.WaitGroup
	boxes := make([]*box, n)
	seen := make([][]string, n)
	for i := range n {
		wg.Go(func() {
			status, body := s.do(t, "POST", "/v1/sandboxes", obj{"memory_mb": 512, "env": obj{"NUMBER": strconv.Itoa(i)}})
			b := &box{t: t, s: s}
			if status != 200 || json.Unmarshal(body, b) != nil {
				t.Errorf("create %d: %d %s", i, status, body)
				return
			}
			boxes[i] = b
			r := b.python(fmt.Sprintf("import os, socket; x = %d; open('/root/x', 'w').write(str(x)); print(os.environ['NUMBER'], socket.gethostname(), os.urandom(8).hex())", i))
			seen[i] = strings.Fields(r.stdout)
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, b := range boxes {
			if b != nil {
				s.do(t, "DELETE", b.path(""), nil)
			}
		}
	})
	if t.Failed() {
		return
	}
	all := map[string]bool{}
	for i, fields := range seen {
		if len(fields) != 3 || fields[0] != strconv.Itoa(i) {
			t.Errorf("sandbox %d says %q", i, fields)
			continue
		}
		all[fields[1]], all[fields[2]] = true, true
	}
	if len(all) != 2*n {
		t.Errorf("%d different names and random numbers, want %d", len(all), 2*n)
	}
	for i, b := range boxes {
		wg.Go(func() {
			if r := b.python("print(x, open('/root/x').read())"); r.stdout != fmt.Sprintf("%d %d\n", i, i) {
				t.Errorf("sandbox %d sees %+v", i, r)
			}
		})
	}
	wg.Wait()
}
