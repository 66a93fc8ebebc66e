package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// setDefaultRoute makes or replaces the default route. advertisedMSS is the
// size of TCP segments to ask for, in bytes, which may be larger than what the
// card's MTU lets the guest send: it makes downloads much cheaper.
func setDefaultRoute(gateway netip.Addr, advertisedMSS uint32) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	defer unix.Close(fd)
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, routeMessage(gateway, advertisedMSS), 0, kernel); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	// The kernel answers before Sendto returns.
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	if err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	if err := routeAnswer(buf[:n]); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

// routeMessage is a request in the form of rtnetlink(7).
func routeMessage(gateway netip.Addr, advertisedMSS uint32) []byte {
	order := binary.NativeEndian
	metrics := routeAttr(unix.RTAX_ADVMSS, order.AppendUint32(nil, advertisedMSS))
	b := make([]byte, unix.SizeofNlMsghdr)
	b = append(b, unix.AF_INET, 0, 0, 0, // family; any destination and source
		unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST,
		0, 0, 0, 0)
	b = append(b, routeAttr(unix.RTA_GATEWAY, gateway.AsSlice())...)
	b = append(b, routeAttr(unix.RTA_METRICS, metrics)...)
	order.PutUint32(b, uint32(len(b)))
	order.PutUint16(b[4:], unix.RTM_NEWROUTE)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	return b
}

// routeAttr is one attribute; the data is a multiple of four bytes.
func routeAttr(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, data...)
}

// routeAnswer reads the acknowledgement, which is an error number, 0 for none.
func routeAnswer(b []byte) error {
	if len(b) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return unix.EBADMSG
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}
