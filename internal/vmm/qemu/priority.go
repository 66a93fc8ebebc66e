package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// backgroundNice is how much a machine in the background gives way: about a
// tenth of the share of one in the foreground.
const backgroundNice = 10

// SetBackground implements vmm.Machine. Linux keeps a nice value for each
// thread, weighs sessions against each other where autogroups are on, and
// groups before either; so all three are set where they are there.
func (m *Machine) SetBackground(on bool) error {
	nice := 0
	if on {
		nice = backgroundNice
	}
	dir := fmt.Sprintf("/proc/%d", m.pid)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return fmt.Errorf("set the machine's priority: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set the machine's priority: %w", err)
		}
	}
	if err := os.WriteFile(dir+"/autogroup", []byte(strconv.Itoa(nice)), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.d.log.Debug("the machine's session keeps its priority", "pid", m.pid, "err", err)
	}
	m.mu.Lock()
	uid, vcpus := m.rec.UID, m.rec.VCPUs
	m.mu.Unlock()
	if err := m.d.cgroups.Weigh(strconv.Itoa(uid), vcpus, on); err != nil {
		m.d.log.Debug("the machine's cgroup keeps its weight", "pid", m.pid, "err", err)
	}
	return nil
}
