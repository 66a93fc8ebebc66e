package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setClock sets the wall clock to what it was when the monotonic clock was at; 0
// means now. So it does not matter how long the call was on its way.
func setClock(nanos, at int64) error {
	if at != 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		nanos += now - at
	}
	ts := unix.NsecToTimespec(nanos)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// monotonic is the guest's monotonic clock, in nanoseconds. It stands still while
// the machine does.
func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return ts.Nano(), nil
}

// addEntropy mixes secret bytes of the host into the kernel's pool and makes
// the generator start again from it, so that siblings of one snapshot do not
// draw the same numbers.
func addEntropy(secret []byte) error {
	const addEntropy, reseed = 0x40085203, 0x5207 // RNDADDENTROPY, RNDRESEEDCRNG
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// struct rand_pool_info: the credit in bits, the length in bytes, the bytes.
	info := binary.NativeEndian.AppendUint32(nil, uint32(len(secret)*8))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(secret)))
	info = append(info, secret...)
	if err := ioctlBytes(f, addEntropy, info); err != nil {
		return fmt.Errorf("add entropy: %w", err)
	}
	if err := unix.IoctlSetInt(int(f.Fd()), reseed, 0); err != nil {
		return fmt.Errorf("reseed: %w", err)
	}
	return nil
}

func validHostname(name string) bool {
	if name == "" || len(name) > 63 || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func validMachineID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// setHostname names the machine, now and in the files that say so.
func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	if err := overwriteFile("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return overwriteFile("/etc/hosts", hostsWith(hosts, name), 0o644)
}

// overwriteFile changes a regular file of the same length where it lies, and
// replaces any other. ext4 writes a replaced file out at once, which takes
// most of a hand-off; host names and machine ids have one length, so those of a
// machine that had some already only change in memory.
func overwriteFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return replaceFile(path, data, mode)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() != int64(len(data)) {
		return replaceFile(path, data, mode)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// hostsWith returns the hosts file with the machine's own name in it. The line
// of 127.0.1.1 is ours, as it is Debian's; everything else stays.
func hostsWith(hosts []byte, name string) []byte {
	const own = "127.0.1.1"
	var out strings.Builder
	var done, loopback bool
	for line := range strings.Lines(string(hosts)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == own {
			if !done {
				fmt.Fprintf(&out, "%s\t%s\n", own, name)
			}
			done = true
			continue
		}
		loopback = loopback || len(fields) > 1 && fields[0] == "127.0.0.1"
		out.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	if !loopback {
		out.WriteString("127.0.0.1\tlocalhost\n")
	}
	if !done {
		fmt.Fprintf(&out, "%s\t%s\n", own, name)
	}
	return []byte(out.String())
}

// setMachineID gives the machine its id where programs look for it.
func setMachineID(id string) error {
	const dbus = "/var/lib/dbus/machine-id"
	text := []byte(id + "\n")
	if err := overwriteFile("/etc/machine-id", text, 0o444); err != nil {
		return err
	}
	if st, err := os.Lstat(dbus); err == nil && st.Mode().IsRegular() {
		return overwriteFile(dbus, text, 0o444)
	}
	return nil
}

// kernelRelease is uname -r.
func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	release, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(release), nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// micros is how a duration is told to the host.
func micros(since time.Time) int64 { return time.Since(since).Microseconds() }
