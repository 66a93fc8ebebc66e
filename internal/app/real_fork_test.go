//go:build integration

package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// writer is Python that starts a program, which writes files and enters each that is complete
// in a manifest.
var writer = `
import hashlib, os, subprocess, time
for k in range(7): os.makedirs("/root/data/%d" % k)
open("/root/writer.py", "w").write("""
import hashlib, os, random, time
manifest = open("/root/manifest", "a")
n = 0
while not os.path.exists("/root/stop"):
    data = os.urandom(random.randrange(1, 30000))
    name = "/root/data/%d/%d" % (n % 7, n)
    with open(name, "wb") as f:
        f.write(data)
        if n % 5 == 0:
            f.flush(); os.fsync(f.fileno())
    if n % 3 == 2:  # names change too
        os.rename(name, name + "r"); name += "r"
    manifest.write("%s %s\\n" % (hashlib.sha256(data).hexdigest(), name)); manifest.flush()
    n += 1
    time.sleep(.05)
""")
program = subprocess.Popen(["python3", "/root/writer.py"])
def written():
    with open("/root/manifest") as f: return [line.split() for line in f]
def more(than, deadline=60):
    end = time.monotonic() + deadline
    while len(written()) <= than:
        assert time.monotonic() < end and program.poll() is None, "the writer does not write"
        time.sleep(.05)
def check():
    """Stops the writer and checks all that it has completed, read from the disk."""
    more(len(written()))
    open("/root/stop", "w").close()
    assert program.wait(60) == 0
    os.sync()
    ` + dropCachesPython() + `
    list = written()
    for want, name in list:
        with open(name, "rb") as f: assert hashlib.sha256(f.read()).hexdigest() == want, name
    found = sum(len(names) for _, _, names in os.walk("/root/data"))
    assert found == len(list) > 20, (found, len(list))
    said = subprocess.run("dmesg | grep -E 'EXT4.*(error|warning)|I/O error'", shell=True, capture_output=True, text=True).stdout
    assert not said, said
    return len(list)
open("/root/manifest", "w").close()
more(20)
`

// TestRealSixteenForksOfAParentThatWrites: memory and disk of another instant would show as damaged
// files or a damaged file system in some of the children.
func TestRealSixteenForksOfAParentThatWrites(t *testing.T) {
	b := realServer(t).create(t, obj{"memory_mb": 512})
	b.mustPython(writer)
	const n = 16
	children := make([]*box, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			status, body := b.s.do(t, "POST", b.path("/fork"), obj{"n": 1})
			var forked struct {
				Children []string
				PausedMs float64 `json:"paused_ms"`
			}
			if err := json.Unmarshal(body, &forked); status != 201 || err != nil || len(forked.Children) != 1 {
				t.Errorf("fork %d: %d %s", i, status, body)
				return
			}
			children[i] = b.of(forked.Children[0])
			t.Logf("fork %d: paused %.1f ms", i, forked.PausedMs)
			if r := children[i].python("check()"); r.code != 0 {
				t.Errorf("child %d: %+v", i, r)
			}
			b.s.call(t, "DELETE", children[i].path(""), nil, nil)
		})
	}
	wg.Wait()
	if r := b.python("check()"); r.code != 0 {
		t.Errorf("the parent: %+v", r)
	}
}

// TestRealSixteenChildrenAtOnce: all have what the parent had, and a name of their own.
func TestRealSixteenChildrenAtOnce(t *testing.T) {
	b := realServer(t).create(t, obj{"memory_mb": 512})
	b.mustPython("import os; x = os.urandom(8).hex(); open('/root/x', 'w').write(x)")
	children := b.fork(16, nil)
	seen := make([]string, len(children))
	var wg sync.WaitGroup
	for i, child := range children {
		wg.Go(func() {
			seen[i] = child.python("import socket; assert x == open('/root/x').read(); print(x, socket.gethostname(), os.urandom(8).hex())").stdout
		})
	}
	wg.Wait()
	same, names, numbers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, line := range seen {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Fatalf("child %d says %q", i, line)
		}
		same[fields[0]], names[fields[1]], numbers[fields[2]] = true, true, true
	}
	if len(same) != 1 || len(names) != len(children) || len(numbers) != len(children) {
		t.Errorf("%d values of x, %d names, %d random numbers", len(same), len(names), len(numbers))
	}
}

// draw is Python that prints what siblings must not share.
const draw = `
import os, random, socket, ssl, sys, uuid
def draws():
    np = [numpy.random.random()] if "numpy" in sys.modules else ["none"]
    return [os.urandom(8).hex(), uuid.uuid4(), ssl.RAND_bytes(8).hex(), socket.gethostname(), open("/etc/machine-id").read().strip(),
            open("/etc/hostname").read().strip(), random.random(), random.gauss(0, 1), *np]
try:
    import numpy
    numpy.random.seed(7)
except ImportError:
    pass
random.seed(7)
random.gauss(0, 1)  # which keeps its second number for the next call
`

func TestRealForkedSiblingsDiffer(t *testing.T) {
	s := realServer(t)
	b := s.create(t, nil)
	b.mustPython(draw)
	const ofTheKernel = 6 // the first draws are never the same
	names := []string{"os.urandom", "uuid4", "ssl", "hostname", "machine-id", "/etc/hostname", "random", "gauss", "numpy"}
	read := func(boxes []*box) [][]string {
		var all [][]string
		for _, one := range boxes {
			fields := strings.Fields(one.mustPython("print(*draws())"))
			if len(fields) != len(names) {
				t.Fatalf("%d draws: %q", len(fields), fields)
			}
			all = append(all, fields)
		}
		return all
	}
	kept := read(b.fork(2, obj{"reseed": false}))
	fresh := read(append(b.fork(2, nil), b))
	if fresh[0][8] == "none" {
		t.Log("numpy is not in the template")
		names = names[:8]
	}
	for k, name := range names {
		if kept[0][k] == kept[1][k] != (k >= ofTheKernel) {
			t.Errorf("with their seeds kept two children draw %s from %s", name, []string{kept[0][k], kept[1][k]})
		}
		seen := map[string]int{}
		for i, fields := range fresh {
			if other, ok := seen[fields[k]]; ok {
				t.Errorf("machines %d and %d have the same %s: %s", other, i, name, fields[k])
			}
			seen[fields[k]] = i
		}
		// The parent goes on with its own numbers, and those who keep its seeds draw them.
		if k >= ofTheKernel && fresh[2][k] != kept[0][k] {
			t.Errorf("the parent draws %s from %s, and a child with its seeds %s", name, fresh[2][k], kept[0][k])
		}
	}
}

// TestRealForkOfALargeBusyMachine: with memory and disk of its own size, 300 MB that were just written,
// threads, processes and open files; and a fork of such a child.
func TestRealForkOfALargeBusyMachine(t *testing.T) {
	b := realServer(t).create(t, obj{"memory_mb": 2048, "disk_mb": 8192})
	const fill = `
import zlib
def fill(mb):
    data, part = bytearray(mb << 20), os.urandom(1 << 20)
    for i in range(0, len(data), 1 << 20): data[i:i+len(part)] = part
    for i in range(0, len(data), 4096): data[i:i+8] = (i + mb).to_bytes(8, "big")
    return data, zlib.crc32(data)
`
	b.mustPython(alive + fill + `
data, crc = fill(300)
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1; time.sleep(.01)
threading.Thread(target=tick, daemon=True).start()
held = open("/root/held", "w+"); held.write("unflushed")
gone = open("/root/gone", "w+"); gone.write("without a name"); gone.flush(); os.remove("/root/gone")
`)
	b.mustBash("head -c 5M /dev/urandom >/root/big; fallocate -l 5G /root/space; echo end | dd of=/root/space bs=1M seek=5000 conv=notrunc status=none; sha256sum /root/big >/root/sum")
	check := func(who string, one *box) {
		t.Helper()
		if got := one.mustPython(`
held.flush(); gone.seek(0)
print(lives(), grows(lambda: ticks), zlib.crc32(data) == crc, len(data) >> 20, open("/root/held").read(), gone.read(),
      os.sysconf("SC_PHYS_PAGES") * 4096 > 1800 << 20, os.statvfs("/").f_blocks * os.statvfs("/").f_frsize > 7000 << 20)`); got !=
			"True True True 300 unflushed without a name True True\n" {
			t.Errorf("%s: %q", who, got)
		}
		if got := one.mustBash("sync; " + dropCaches() + "; sha256sum --status -c /root/sum && dd if=/root/space bs=1M skip=5000 count=1 status=none | head -c3"); got != "end" {
			t.Errorf("%s: its files: %q", who, got)
		}
		if r := one.record(); r.MemoryMB != 2048 || r.DiskMB != 8192 {
			t.Errorf("%s: %+v", who, r)
		}
	}
	child := b.fork(1, nil)[0]
	check("the child", child)
	child.mustPython("more, morecrc = fill(100)")
	grand := child.fork(1, nil)[0]
	b.s.call(t, "DELETE", child.path(""), nil, nil)
	check("the child of the child", grand)
	if got := grand.mustPython("print(zlib.crc32(more) == morecrc)"); got != "True\n" {
		t.Errorf("the second fill: %q", got)
	}
	check("the parent", b)
	if r := grand.record(); r.Origin != "fork" || r.Parent != child.ID {
		t.Errorf("its record says %+v", r)
	}
	// And a hibernation of as much.
	grand.hibernate()
	check("the woken child of the child", grand)
	if got := grand.mustPython(`print(len(more) >> 20)`); got != fmt.Sprintln(100) {
		t.Errorf("the second fill: %q", got)
	}
}
