package process

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// threadOfOurs is an id of another thread of this process, which kcmp takes like a process's.
func threadOfOurs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil && id != os.Getpid() {
			return id
		}
	}
	t.Fatal("this process has one thread")
	return 0
}

// other starts a process that waits until the test ends.
func other(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	// What it says back shows that it is loaded.
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestCompareMemory(t *testing.T) {
	self, thread, a, b := os.Getpid(), threadOfOurs(t), other(t), other(t)
	order := func(x, y int) int {
		t.Helper()
		n, err := compareMemory(x, y)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := order(self, thread); n != 0 {
		t.Errorf("two threads of a process: %d", n)
	}
	all := []int{self, a, b}
	for _, x := range all {
		for _, y := range all {
			if n := order(x, y); (n == 0) != (x == y) || n != -order(y, x) {
				t.Errorf("%d and %d: %d, and the other way round %d", x, y, n, order(y, x))
			}
		}
	}
}

func TestSumPSSCountsAnAddressSpaceOnce(t *testing.T) {
	// Those of others, which do nothing meanwhile and so have the same size at each look.
	a, b := other(t), other(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	one, err := SumPSS([]int{a})
	if err != nil {
		t.Fatal(err)
	}
	two, err := SumPSS([]int{a, b, gone.Process.Pid, b, a, a})
	if err != nil {
		t.Fatal(err)
	}
	if one <= 0 || two <= one || two > 3*one {
		t.Errorf("one process %d bytes, two %d", one, two)
	}
}
