package qemu

import (
	"bufio"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Named CPU models, so that a guest sees the same processor wherever its snapshot is restored.
//
// TCG: Westmere is the newest of QEMU's models that 7.2's TCG provides in full,
// without a warning about missing features. It is x86-64-v2 (what the wheels
// of numpy and others ask for) with AES and PCLMUL. No AVX on purpose: TCG
// emulates its wide registers in slow helpers, and glibc would choose them for
// every memcpy. Added are the random number instruction, which seeds the
// kernel's generator at once, and some cheap ones that kernels like to have.
//
// KVM: the newest models that every server of the last years has; both have AVX2 (x86-64-v3).
const (
	cpuTCG      = "Westmere-v1,+rdrand,+rdtscp,+fsgsbase,+pdpe1gb,+erms"
	cpuKVMIntel = "Haswell-v4"
	cpuKVMAMD   = "EPYC-v3"
)

func defaultCPUModel(accel, vendor string) string {
	switch {
	case accel == "tcg":
		return cpuTCG
	case vendor == "AuthenticAMD":
		return cpuKVMAMD
	}
	return cpuKVMIntel
}

// hostCPU returns the vendor and the name of the host's first processor.
func hostCPU() (vendor, model string) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", ""
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "vendor_id":
			vendor = strings.TrimSpace(value)
		case "model name":
			model = strings.TrimSpace(value)
		case "": // end of the first processor
			return vendor, model
		}
	}
	return vendor, model
}

// tscKHz measures the rate of the host's time stamp counter, in about 25 ms.
// Guests calibrate to it when they boot and keep it in their snapshot, so a
// wrong result here condemns a good snapshot: both ends of a measurement are
// readings that nothing interrupted, and the middle one of five counts.
func tscKHz(now func() time.Duration, tsc func() int64) int64 {
	const rounds, length = 5, 5 * time.Millisecond
	var rates [rounds]int64
	for i := range rates {
		begin, first := readTogether(now, tsc)
		for now()-begin < length {
		}
		end, last := readTogether(now, tsc)
		rates[i] = int64(float64(last-first) / (end - begin).Seconds() / 1000)
	}
	slices.Sort(rates[:])
	return rates[rounds/2]
}

// readTogether reads both clocks at one instant. Of some attempts it takes the
// one that took least: it was not interrupted between the readings.
func readTogether(now func() time.Duration, tsc func() int64) (at time.Duration, ticks int64) {
	const attempts = 16
	shortest := time.Duration(math.MaxInt64)
	for range attempts {
		before := now()
		t := tsc()
		if took := now() - before; took < shortest {
			shortest, at, ticks = took, before+took/2, t
		}
	}
	return at, ticks
}

// hostTSC is tscKHz of this host; 0 where there is no such counter.
func hostTSC() int64 {
	begin := time.Now()
	return tscKHz(func() time.Duration { return time.Since(begin) }, func() int64 { return int64(rdtsc()) })
}
