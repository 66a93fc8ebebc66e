package gvisor

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	"ramet.dev/ramet/internal/network/layout"
)

// The guest's stack reads and writes the frames of the card by a packet socket. What follows are
// gVisor's boot.CreateLinksAndRoutesArgs, as runsc would make them of a card that has the
// guest's address.
type networkArgs struct {
	urpc.FilePayload // one socket for each of FDBasedLinks

	LoopbackLinks    []loopbackLink
	FDBasedLinks     []fdLink
	Defaultv4Gateway defaultRoute
	IsRestore        bool
}

type loopbackLink struct {
	Name      string
	Addresses []address
	Routes    []route
}

type fdLink struct {
	Name              string
	MTU               int
	Addresses         []address
	Routes            []route
	GSOMaxSize        uint32 // bytes
	RXChecksumOffload bool
	LinkAddress       net.HardwareAddr
	QDisc             int
	NumChannels       int
}

type address struct {
	Address   net.IP
	PrefixLen int
}

type route struct {
	Destination net.IPNet
	Gateway     net.IP
}

type defaultRoute struct {
	Route route
	Name  string
}

const (
	qdiscFIFO  = 1       // gVisor's config.QDiscFIFO
	gsoMaxSize = 1 << 16 // what a TAP takes, in bytes
	// cardBuffer is the size of the packet socket's buffers, in bytes.
	cardBuffer = 4 << 20
)

var guestMAC = func() net.HardwareAddr {
	mac, err := net.ParseMAC(layout.GuestMAC)
	if err != nil {
		panic(err)
	}
	return mac
}()

// networkOf describes the guest's network. card is what openCard returns.
func networkOf(card *os.File, restore bool) *networkArgs {
	mask := net.CIDRMask(layout.PrefixLen, 32)
	guest := net.ParseIP(layout.GuestIP).To4()
	a := &networkArgs{
		LoopbackLinks: []loopbackLink{{
			Name:      "lo",
			Addresses: []address{{net.IPv4(127, 0, 0, 1).To4(), 8}, {net.IPv6loopback, 128}},
			Routes: []route{
				{Destination: net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}},
				{Destination: net.IPNet{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)}},
			},
		}},
		FDBasedLinks: []fdLink{{
			Name: cardName, MTU: layout.MTU, Addresses: []address{{guest, layout.PrefixLen}},
			Routes:     []route{{Destination: net.IPNet{IP: guest.Mask(mask), Mask: mask}}},
			GSOMaxSize: gsoMaxSize, RXChecksumOffload: true, LinkAddress: guestMAC, QDisc: qdiscFIFO, NumChannels: 1,
		}},
		Defaultv4Gateway: defaultRoute{
			Name: cardName,
			Route: route{
				Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
				Gateway:     net.ParseIP(layout.GatewayIP).To4(),
			},
		},
		IsRestore: restore,
	}
	a.Files = []*os.File{card}
	return a
}

// openCard opens the socket on a sandbox's card with which its stack reads and writes frames.
func openCard(pidfd *os.File) (*os.File, error) {
	var card *os.File
	err := inNetwork(pidfd, func() error {
		iface, err := net.InterfaceByName(cardName)
		if err != nil {
			return err
		}
		// Without a protocol it takes nothing until it is bound, which is faster.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		card = os.NewFile(uintptr(fd), "card")
		const everything = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: iface.Index}),
			// Large segments are cut by the host.
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, cardBuffer),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, cardBuffer),
		)
	})
	if err != nil {
		if card != nil {
			err = errors.Join(err, card.Close())
		}
		return nil, fmt.Errorf("open the guest's network: %w", err)
	}
	return card, nil
}
