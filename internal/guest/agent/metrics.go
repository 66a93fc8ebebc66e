package agent

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// measure reads what the kernel says about the machine.
func measure() (*agentv1.MetricsResponse, error) {
	m := new(agentv1.MetricsResponse)
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return nil, err
	}
	m.DiskTotalBytes = st.Blocks * uint64(st.Bsize)
	m.DiskFreeBytes = st.Bavail * uint64(st.Bsize)
	for _, source := range []struct {
		path  string
		parse func(string, *agentv1.MetricsResponse)
	}{
		{"/proc/meminfo", parseMeminfo},
		{"/proc/loadavg", parseLoadavg},
		{"/proc/uptime", parseUptime},
		{"/proc/stat", parseStat},
	} {
		text, err := os.ReadFile(source.path)
		if err != nil {
			return nil, err
		}
		source.parse(string(text), m)
	}
	var err error
	m.Processes, err = countProcesses()
	return m, err
}

func parseMeminfo(text string, m *agentv1.MetricsResponse) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			m.MemoryTotalBytes = kb << 10
		case "MemAvailable:":
			m.MemoryAvailableBytes = kb << 10
		}
	}
}

// parseLoadavg reads "0.00 0.01 0.05 1/123 4567".
func parseLoadavg(text string, m *agentv1.MetricsResponse) {
	if f := strings.Fields(text); len(f) > 0 {
		m.Load1, _ = strconv.ParseFloat(f[0], 64)
	}
}

func parseUptime(text string, m *agentv1.MetricsResponse) {
	if f := strings.Fields(text); len(f) > 0 {
		m.UptimeSeconds, _ = strconv.ParseFloat(f[0], 64)
	}
}

// parseStat sums the first line of /proc/stat without idle and iowait. A tick
// is 10 ms on every architecture that we run on.
func parseStat(text string, m *agentv1.MetricsResponse) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) == 0 || f[0] != "cpu" {
		return
	}
	// user nice system idle iowait irq softirq steal; guest time is in user already
	for i, s := range f[1:min(len(f), 9)] {
		if i == 3 || i == 4 {
			continue
		}
		ticks, _ := strconv.ParseUint(s, 10, 64)
		m.CpuBusyMillis += ticks * 10
	}
}

// countProcesses counts the numbers in /proc: one for each process, not thread.
func countProcesses() (uint32, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	var n uint32
	for _, name := range names {
		if strings.Trim(name, "0123456789") == "" {
			n++
		}
	}
	return n, nil
}
