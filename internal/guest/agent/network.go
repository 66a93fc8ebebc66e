package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/layout"
)

const ethernet = "eth0"

// setupNetwork brings up the loopback and the one network card, whose address
// is the same in every guest. A machine without a card still boots.
func setupNetwork(logger *slog.Logger) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := linkUp(fd, "lo"); err != nil {
		return err
	}
	err = configureEthernet(fd)
	if errors.Is(err, unix.ENODEV) {
		logger.Warn("no network card", "interface", ethernet)
		return nil
	}
	if err != nil {
		return err
	}
	return writeResolver()
}

func writeResolver() error {
	return replaceFile("/etc/resolv.conf", []byte("nameserver "+layout.GatewayIP+"\n"), 0o644)
}

func configureEthernet(fd int) error {
	mtu, err := unix.NewIfreq(ethernet)
	if err != nil {
		return err
	}
	mtu.SetUint32(layout.MTU)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, mtu); err != nil {
		return fmt.Errorf("set MTU: %w", err)
	}
	for _, a := range []struct {
		request uint
		address string
	}{
		{unix.SIOCSIFADDR, layout.GuestIP},
		{unix.SIOCSIFNETMASK, layout.Netmask},
		{unix.SIOCSIFBRDADDR, layout.BroadcastIP},
	} {
		r, err := unix.NewIfreq(ethernet)
		if err != nil {
			return err
		}
		ip := netip.MustParseAddr(a.address).As4()
		if err := r.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, a.request, r); err != nil {
			return fmt.Errorf("set address %s: %w", a.address, err)
		}
	}
	if err := linkUp(fd, ethernet); err != nil {
		return err
	}
	return setDefaultRoute(netip.MustParseAddr(layout.GatewayIP), layout.AdvertisedMSS)
}

func linkUp(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// replaceFile gives path the content data, if it has not got it. A symbolic
// link is replaced by a file: the target may belong to a service that is not
// there.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	temp := path + ".ramet-new"
	if err := os.WriteFile(temp, data, mode); err != nil {
		return err
	}
	err := os.Rename(temp, path)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) {
		// Something is mounted over it.
		return errors.Join(os.WriteFile(path, data, mode), os.Remove(temp))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}
