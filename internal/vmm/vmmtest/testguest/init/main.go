//go:build linux

// Command init is the test guest's first program. In a virtual machine it loads the
// modules of the archive that it comes in, and opens the agent's port and the disk. In a
// gVisor sandbox its standard input and output are the port, and a file is the disk. It
// serves the suite's requests, and is no model for the real agent.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/vmm/vmmtest/testguest"
)

// inSandbox says that this is no virtual machine, so there are no devices.
var inSandbox = os.Getenv("RAMET_DRIVER") == "gvisor"

func main() {
	if inSandbox {
		fmt.Fprintln(os.Stderr, "test guest:", runInSandbox())
		os.Exit(1)
	}
	fmt.Println("test guest:", run()) // it returns only when it cannot go on
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	fmt.Println("test guest: started")
	list, err := os.ReadFile("/modules.list")
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(list)) {
		if err := load(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	port, err := waitFor("/sys/class/virtio-ports/*/name", "ramet.agent")
	if err != nil {
		return err
	}
	if _, err := waitFor("/sys/block/vda/dev", ""); err != nil {
		return err
	}
	f, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(port)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	serve(f)
	return nil
}

// serve never ends.
func serve(port io.ReadWriter) {
	fmt.Fprintln(os.Stderr, "test guest: ready")
	g := &guest{values: map[string]string{}}
	for {
		// The read ends while no host is connected.
		if err := testguest.Serve(port, g); err != nil {
			fmt.Fprintln(os.Stderr, "test guest: serve:", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// runInSandbox serves on standard input and output. It outlives servers, so that nobody reads
// what it writes is no reason to end.
func runInSandbox() error {
	signal.Ignore(unix.SIGPIPE)
	disk, err := os.OpenFile(diskFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := disk.Close(); err != nil {
		return err
	}
	serve(struct {
		io.Reader
		io.Writer
	}{os.Stdin, os.Stdout})
	return nil
}

// diskFile is the disk of a sandbox.
const diskFile = "/disk"

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// waitFor waits until a file that matches has the content. Devices appear a
// little after their driver.
func waitFor(pattern, content string) (string, error) {
	for range 2000 {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err == nil && (content == "" || strings.TrimSpace(string(b)) == content) {
				return p, nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "", fmt.Errorf("there is no %s with %q", pattern, content)
}

type guest struct {
	values map[string]string
	hog    [][]byte
}

func (g *guest) Do(command string, args []string) (string, error) {
	args = append(args, "", "", "")
	switch command {
	case "echo":
		return args[0], nil
	case "set":
		g.values[args[0]] = args[1]
		return "ok", nil
	case "get":
		return g.values[args[0]], nil
	case "mem":
		return memoryMB()
	case "disk":
		return diskMB()
	case "uptime":
		b, err := os.ReadFile("/proc/uptime")
		return strings.Fields(string(b) + " ?")[0], err
	case "frame":
		return "ok", sendFrame(args[0])
	case "flood":
		return "ok", flood(number(args[0]))
	case "off":
		if inSandbox {
			os.Exit(0)
		}
		return "", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case "discard":
		return "ok", discard()
	case "dirty":
		return g.dirty(number(args[0]), uint64(number(args[1])))
	case "sum":
		return g.sum(), nil
	case "hog":
		return g.writeAllMemory()
	case "wdisk":
		return "ok", writeDisk(number(args[0]), uint64(number(args[1])), number(args[2]))
	case "rdisk":
		return readDisk(number(args[0]), number(args[1]))
	}
	return "", fmt.Errorf("unknown command %q", command)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func memoryMB() (string, error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return "", err
	}
	return strconv.FormatUint(s.Totalram*uint64(s.Unit)>>20, 10), nil
}

func diskMB() (string, error) {
	if inSandbox {
		var st unix.Statfs_t
		err := unix.Statfs("/", &st)
		return strconv.FormatUint(st.Blocks*uint64(st.Bsize)>>20, 10), err
	}
	b, err := os.ReadFile("/sys/block/vda/size")
	return strconv.FormatInt(number(strings.TrimSpace(string(b)))>>11, 10), err
}

// fill makes content that depends on the seed, cheaply: emulated guests are slow.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := 0; i+8 <= len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
}

// sumOf is as cheap; it notices any word that is wrong or in the wrong place.
func sumOf(h uint64, b []byte) uint64 {
	for i := 0; i+8 <= len(b); i += 8 {
		h = (h ^ binary.LittleEndian.Uint64(b[i:])) * 0x100000001b3
	}
	return h
}

func (g *guest) dirty(mb int64, seed uint64) (string, error) {
	g.hog = nil
	for i := range mb {
		b := make([]byte, 1<<20)
		fill(b, seed+uint64(i))
		g.hog = append(g.hog, b)
	}
	return g.sum(), nil
}

func (g *guest) sum() string {
	h := uint64(0xcbf29ce484222325)
	for _, b := range g.hog {
		h = sumOf(h, b)
	}
	return strconv.FormatUint(h, 16)
}

// writeAllMemory writes to nearly all memory that is free.
func (g *guest) writeAllMemory() (string, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(b), "MemAvailable:")
	mb := number(strings.Fields(rest + " 0")[0])>>10 - 48
	data, err := unix.Mmap(-1, 0, int(mb)<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(data); i += 4096 {
		data[i] = byte(i>>12) | 1
	}
	return strconv.FormatInt(mb, 10), unix.Munmap(data)
}

func openDisk() (*os.File, error) {
	if inSandbox {
		return os.OpenFile(diskFile, os.O_RDWR, 0)
	}
	return os.OpenFile("/dev/vda", os.O_RDWR|unix.O_SYNC, 0)
}

func writeDisk(off int64, seed uint64, size int64) error {
	f, err := openDisk()
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, size)
	fill(b, seed)
	_, err = f.WriteAt(b, off)
	return err
}

func readDisk(off, size int64) (string, error) {
	// What counts is on the disk, not in the guest's cache. A sandbox has none.
	if !inSandbox {
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
			return "", err
		}
	}
	f, err := openDisk()
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, off, size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// discard drops the whole disk's content.
func discard() error {
	f, err := openDisk()
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// flood writes so many KB to the console.
func flood(kb int64) error {
	line := []byte(strings.Repeat("flood ", 170) + "\n")
	con, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer con.Close()
	for n := int64(0); n < kb<<10; n += int64(len(line)) {
		if _, err := con.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// sendFrame sends one Ethernet frame with the payload from the network card.
func sendFrame(payload string) error {
	if inSandbox { // which may not make frames itself
		conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(192, 168, 127, 255), Port: 9})
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte(payload))
		return errors.Join(err, conn.Close())
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range ifs {
		if i.Flags&net.FlagLoopback != 0 || len(i.HardwareAddr) != 6 {
			continue
		}
		if err := linkUp(i.Name); err != nil {
			return err
		}
		const proto = 0x88b5 // for local experiments
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := append(append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, i.HardwareAddr...), proto>>8, proto&0xff)
		frame = append(frame, payload...)
		frame = append(frame, make([]byte, max(0, 60-len(frame)))...)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: i.Index})
	}
	return errors.New("there is no network card")
}

func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
