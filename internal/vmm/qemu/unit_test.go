package qemu

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
	"ramet.dev/ramet/internal/vmm/process"
)

func TestCreateOverlay(t *testing.T) {
	for _, mb := range []int64{1, 512, 4096, 65536} {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		if err := createOverlay(path, mb<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("qemu-img", "check", path).CombinedOutput(); err != nil {
			t.Errorf("%d MB: qemu-img check: %v: %s", mb, err, out)
		}
		out, err := exec.Command("qemu-io", "-f", "qcow2", "-c", "write -P 7 512k 64k", "-c", "read -P 7 512k 64k", "-c", "length", path).CombinedOutput()
		if err != nil || strings.Contains(string(out), "error") || strings.Contains(string(out), "failed") {
			t.Errorf("%d MB: qemu-io: %v: %s", mb, err, out)
		}
		if err := createOverlay(path, mb<<20); err == nil {
			t.Error("an overlay was overwritten")
		}
	}
}

func TestUIDPool(t *testing.T) {
	dir := t.TempDir()
	pool, err := newUIDPool(filepath.Join(dir, "uids"), 900000, 3)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, name := range []string{"a", "b", "c"} {
		inst := filepath.Join(dir, name)
		if err := os.Mkdir(inst, 0o700); err != nil {
			t.Fatal(err)
		}
		uid, err := pool.take(inst)
		if err != nil || seen[uid] {
			t.Fatalf("uid %d, %v", uid, err)
		}
		seen[uid] = true
		if got, err := pool.taken(inst); err != nil || got != uid {
			t.Errorf("taken: %d, %v", got, err)
		}
	}
	if _, err := pool.take(filepath.Join(dir, "d")); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a fourth uid of three: %v", err)
	}
	// The directory of a machine that is gone gives its uid back.
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.take(filepath.Join(dir, "d")); err != nil {
		t.Errorf("the uid of a machine that is gone: %v", err)
	}
}

func TestParsers(t *testing.T) {
	v, err := parseVersion("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n")
	if err != nil || v.String() != "7.2.22" || !v.atLeast(7, 2) || v.atLeast(8, 2) {
		t.Errorf("version %v, %v", v, err)
	}
	if _, err := parseVersion("nonsense"); err == nil {
		t.Error("nonsense has a version")
	}
	st, err := process.ParseStat([]byte("12 (a ) b) S 1 1 1 0 -1 4194560 1 2 3 4 100 50 0 0 20 0 1 0 777 1 1"))
	if err != nil || st.State != 'S' || st.StartTime != 777 || st.CPU != 1500*time.Millisecond {
		t.Errorf("stat %+v, %v", st, err)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1", "1 (x) S a b c d e f g h i j k l m n o p q r s t"} {
		if _, err := process.ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q is a status", bad)
		}
	}
	r, ok := parseMapping("7f0000000000-7f0020000000 rw-p 00000000 00:01 4242   /memfd:ramet-golden (deleted)", 4242)
	if !ok || r.start != 0x7f0000000000 || r.size != 512<<20 {
		t.Errorf("mapping %+v %v", r, ok)
	}
	for _, line := range []string{"", "7f0000000000-7f0020000000 rw-p 00001000 00:01 4242 x", "7f00-7f0020000000 rw-p 00000000 00:01 42 x", "2-1 rw-p 0 0 4242 x"} {
		if _, ok := parseMapping(line, 4242); ok {
			t.Errorf("%q is the mapping", line)
		}
	}
	if a, err := parseHVA("Host virtual address for 0x100000000 (vmem0) is 0x7fabc0000000\n"); err != nil || a != 0x7fabc0000000 {
		t.Errorf("address %#x, %v", a, err)
	}
	if _, err := parseHVA("Memory at address 0x0 is not RAM"); err == nil {
		t.Error("an error message has an address")
	}
	names := ramBlocks("              Block Name    PSize   Offset\n  ram0   4 KiB  0x0\r\n 0000:00:06.0/vmem0  4 KiB 0x1\n\n")
	if strings.Join(names, ",") != "ram0,0000:00:06.0/vmem0" {
		t.Errorf("blocks %v", names)
	}
}

func TestOwnPage(t *testing.T) {
	for _, c := range []struct {
		entry uint64
		own   bool
	}{
		{0, false},                          // never touched
		{pagePresent | pageOfFile, false},   // read from the golden
		{pagePresent, true},                 // written
		{pageSwapped, true},                 // written, swapped out
		{pageSwapped | pageOfFile, true},    // kept: more is slow, less is loss
		{pagePresent | 1<<56 | 0x123, true}, // exclusive, with a frame
	} {
		if ownPage(c.entry) != c.own {
			t.Errorf("%#x: own is not %v", c.entry, c.own)
		}
	}
}

// TestOwnRuns finds what was written in a private mapping of this process.
func TestOwnRuns(t *testing.T) {
	f, err := newMemory("ramet-test", firstBootMB)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, firstBootMB<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	var sum byte
	for _, page := range []int{5, 6, 900} {
		sum += mem[page*4096] // reading makes no page one's own
	}
	for _, page := range []int{0, 3, 4, 5, 1000, 131071} {
		mem[page*4096] = 1 + sum
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r, err := findMapping(os.Getpid(), st.Sys().(*syscall.Stat_t).Ino, firstBootMB<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]uint64
	if err := ownRuns(os.Getpid(), r, 2*4096, func(off, size uint64) error {
		got = append(got, [2]uint64{off / 4096, size / 4096})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := [][2]uint64{{0, 1}, {3, 2}, {5, 1}, {1000, 1}, {131071, 1}}
	if len(got) != len(want) {
		t.Fatalf("runs %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("run %d is %v, want %v", i, got[i], want[i])
		}
	}
	buf := make([]byte, 8192)
	if err := readMemory(os.Getpid(), r.start+3*4096, buf); err != nil || buf[0] != 1 || buf[4096] != 1 {
		t.Errorf("read: %v", err)
	}
	buf[0] = 77
	if err := writeMemory(os.Getpid(), r.start+4096, buf[:4096]); err != nil || mem[4096] != 77 {
		t.Errorf("write: %v", err)
	}
	if err := readMemory(os.Getpid(), 16, buf); err == nil {
		t.Error("read what is not mapped")
	}
}

func TestFits(t *testing.T) {
	d := &Driver{version: &binaryVersion{known: version{7, 2, 22}}, tsc: 2_500_000}
	rec := record{Accel: "tcg", CPUModel: cpuTCG, QEMUVersion: "7.2.22", VCPUs: 2}
	ok := snapshot.Manifest{
		Driver: "qemu", DriverVersion: "7.2.9", Accel: "tcg", Machine: machineType, CPUModel: cpuTCG,
		ShapeVersion: shapeVersion, VCPUs: 2, ImageHash: "h", TSCKHz: 2_500_900,
	}
	if err := d.fits(&ok, rec, "h"); err != nil {
		t.Errorf("what fits: %v", err)
	}
	for name, change := range map[string]func(*snapshot.Manifest){
		"driver": func(m *snapshot.Manifest) { m.Driver = "x" }, "version": func(m *snapshot.Manifest) { m.DriverVersion = "10.0.0" },
		"accel": func(m *snapshot.Manifest) { m.Accel = "kvm" }, "machine": func(m *snapshot.Manifest) { m.Machine = "pc-q35-8.0" },
		"cpu": func(m *snapshot.Manifest) { m.CPUModel = "EPYC" }, "shape": func(m *snapshot.Manifest) { m.ShapeVersion = 2 },
		"vcpus": func(m *snapshot.Manifest) { m.VCPUs = 4 }, "image": func(m *snapshot.Manifest) { m.ImageHash = "other" },
		"tsc": func(m *snapshot.Manifest) { m.TSCKHz = 3_000_000 },
	} {
		m := ok
		change(&m)
		err := d.fits(&m, rec, "h")
		var mm *MismatchError
		if !errors.Is(err, vmm.ErrSnapshotMismatch) || !errors.As(err, &mm) || sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordOfAnotherProcess(t *testing.T) {
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	st, err := process.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	me := record{Process: machinefile.Process{PID: os.Getpid(), StartTime: st.StartTime, BootID: boot}}
	for name, c := range map[string]struct {
		change func(*record)
		gone   bool
	}{
		"itself":                {func(*record) {}, false},
		"a reused pid":          {func(r *record) { r.StartTime++ }, true},
		"before the last boot":  {func(r *record) { r.BootID = "x" }, true},
		"never started":         {func(r *record) { r.PID = 0 }, true},
		"a pid that nobody has": {func(r *record) { r.PID = 1 << 30 }, true},
	} {
		r := me
		c.change(&r)
		if gone, err := r.IsGone(); err != nil || gone != c.gone {
			t.Errorf("%s: gone %v, %v", name, gone, err)
		}
	}
}

func TestTSC(t *testing.T) {
	if khz := hostTSC(); khz < 500_000 || khz > 10_000_000 {
		t.Errorf("the time stamp counter runs at %d kHz", khz)
	}
}

// TestTSCOfABusyHost interrupts the measurement anywhere, for longer than it takes.
func TestTSCOfABusyHost(t *testing.T) {
	const khz = 2_500_000
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var at time.Duration
		pass := func() {
			at += 100 * time.Nanosecond
			if r.IntN(8) == 0 {
				at += time.Duration(r.IntN(int(8 * time.Millisecond)))
			}
		}
		got := tscKHz(
			func() time.Duration { pass(); return at },
			func() int64 { pass(); return int64(at) * khz / int64(time.Millisecond) },
		)
		if off := float64(got-khz) / khz; off > tscTolerance/10 || off < -tscTolerance/10 {
			t.Fatalf("seed %d: measured %d kHz instead of %d", seed, got, khz)
		}
	}
}

// startProcess runs a program as a machine's uid until the test ends.
func startProcess(t *testing.T, uid int) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a process as somebody else")
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}

// TestRemoveTwiceAtOnce is two Removes of one machine, between which its uid
// gets another owner: the second must leave that one alone.
func TestRemoveTwiceAtOnce(t *testing.T) {
	dir := t.TempDir()
	pool, err := newUIDPool(filepath.Join(dir, "uids"), 910000, 2)
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{uids: pool}
	old, next := filepath.Join(dir, "old"), filepath.Join(dir, "next")
	if err := errors.Join(os.Mkdir(old, 0o700), os.Mkdir(next, 0o700)); err != nil {
		t.Fatal(err)
	}
	uid, err := pool.take(old)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.removing.lock(t.Context(), old) // the first Remove is at work
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- d.Remove(t.Context(), old) }()
	for waiting := false; !waiting; {
		d.removing.mu.Lock()
		waiting = d.removing.locks[old].users == 2
		d.removing.mu.Unlock()
		select {
		case err := <-second:
			t.Fatalf("the second did not wait for the first: %v", err)
		default:
		}
	}
	if err := pool.free(uid, old); err != nil { // the first ends
		t.Fatal(err)
	}
	if got, err := pool.take(next); err != nil || got != uid {
		t.Fatalf("the next machine has uid %d, %v; this test wants %d", got, err, uid)
	}
	stranger := startProcess(t, uid)
	first()
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if st, err := process.ReadStat(stranger.Process.Pid); err != nil || st.State == 'Z' {
		t.Errorf("the process of another machine was killed: %c, %v", st.State, err)
	}
	if got, err := pool.taken(next); err != nil || got != uid {
		t.Errorf("the other machine's uid was freed: %d, %v", got, err)
	}
	if err := pool.free(uid, old); err != nil {
		t.Fatal(err)
	}
	if got, err := pool.taken(next); err != nil || got != uid {
		t.Errorf("a uid was freed by the machine that had it before: %d, %v", got, err)
	}
	if len(d.removing.locks) != 0 {
		t.Error("locks are left")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	unlock, err := d.removing.lock(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := d.Remove(over, next); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove waits although its context has ended: %v", err)
	}
}

// TestFailedStartKeepsTheUIDOfAProcessThatLives is a start whose process does not die:
// nobody else may get its uid, and Remove must find it.
func TestFailedStartKeepsTheUIDOfAProcessThatLives(t *testing.T) {
	for _, undead := range []bool{false, true} {
		dir := t.TempDir()
		pool, err := newUIDPool(filepath.Join(dir, "uids"), 920000, 2)
		if err != nil {
			t.Fatal(err)
		}
		c := vmm.Config{Instance: sandbox.NewInstanceID(), Dir: filepath.Join(dir, "machine")}
		if err := os.Mkdir(c.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s := &start{d: &Driver{uids: pool}, cfg: c}
		if err := s.reserve(t.Context()); err != nil {
			t.Fatal(err)
		}
		timeout := errors.New("it hangs")
		s.onFail(func() error { // as launch does
			if !undead {
				return nil
			}
			s.undead = true
			return timeout
		})
		boom := errors.New("boom")
		err = s.fail("connect", boom)
		if !errors.Is(err, boom) || errors.Is(err, timeout) != undead {
			t.Errorf("undead %v: %v", undead, err)
		}
		if uid, err := pool.taken(c.Dir); err != nil || (uid != 0) != undead {
			t.Errorf("undead %v: uid %d, %v", undead, uid, err)
		}
	}
}

// TestFailedStartTellsWhatTheMachineSaid has a console and QEMU's own errors.
func TestFailedStartTellsWhatTheMachineSaid(t *testing.T) {
	dir := t.TempDir()
	c, err := console.Open(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	w, err := console.WriterFor(dir, console.MonitorName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("qemu: no such device\n"); err != nil {
		t.Fatal(err)
	}
	s := &start{d: &Driver{}, cfg: vmm.Config{Dir: dir}, console: c}
	s.onFail(func() error { return errors.Join(w.Close(), c.Finish()) })
	boom := errors.New("boom")
	err = s.fail("connect", boom)
	var said *vmm.StartError
	if !errors.As(err, &said) || said.Console != "qemu: no such device\n" || !errors.Is(err, boom) {
		t.Errorf("got %v, %+v", err, said)
	}
}

// TestKillUIDIsDoneWithAProcessThatNobodyReaps: in a container PID 1 may never reap.
func TestKillUIDIsDoneWithAProcessThatNobodyReaps(t *testing.T) {
	const uid = 1_900_000_123
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // until then it is a zombie
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := killUID(ctx, uid); err != nil {
		t.Fatal(err)
	}
	if pids, err := process.OfUID(uid); err != nil || len(pids) != 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// TestMemoryIsFoundAmongOtherFiles has the files of killed saves beside the memory.
func TestMemoryIsFoundAmongOtherFiles(t *testing.T) {
	open := func(name string) *os.File {
		t.Helper()
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), name)
		t.Cleanup(func() { f.Close() })
		return f
	}
	for range 12 { // directories are listed by name: "10" is before "9"
		open("ramet-state")
	}
	for _, name := range []string{goldenMemory, newGoldenMemory} {
		memory := open(name)
		found, err := openMemoryOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		a, err1 := memory.Stat()
		b, err2 := found.Stat()
		if err := errors.Join(err1, err2, found.Close(), memory.Close()); err != nil || !os.SameFile(a, b) {
			t.Errorf("%s was not found: %v", name, err)
		}
	}
}
