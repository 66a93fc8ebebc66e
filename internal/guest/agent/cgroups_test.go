package agent

import "testing"

func TestGroupLimitsFollowTheMemory(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ total, memory, tasks uint64 }{
		{64 * mb, 32 * mb, minTasks},
		{460 * mb, 364 * mb, minTasks},
		{917 * mb, 821 * mb, minTasks},
		{4000 * mb, 3904 * mb, 4000},
		{64000 * mb, 63904 * mb, maxTasks},
	} {
		if got := groupLimits(c.total); got != (limits{c.memory, c.tasks}) {
			t.Errorf("%d MB: %d MB and %d tasks", c.total/mb, got.memory/mb, got.tasks)
		}
	}
}

func TestMemoryEvents(t *testing.T) {
	for message, want := range map[string]bool{
		"online@/devices/system/memory/memory40\x00ACTION=online\x00":   true,
		"offline@/devices/system/memory/memory40\x00ACTION=offline":     true,
		"add@/devices/system/memory/memory40\x00ACTION=add\x00":         false,
		"online@/devices/system/cpu/cpu1\x00":                           false,
		"change@/devices/pci0000:00/0000:00:04.0/virtio2/block/vda\x00": false,
		"": false,
	} {
		if got := memoryEvent([]byte(message)); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
