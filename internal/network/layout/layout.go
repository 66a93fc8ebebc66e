// Package layout holds the fixed addresses of the network that every guest
// sees. All guests have the same ones, so that a fork or a wake never has to
// renumber. The guest agent imports this package: keep it free of imports.
// The gateway itself is in internal/network.
package layout

const (
	// Subnet is the guest's network, PrefixLen the length of its mask.
	Subnet    = "192.168.127.0/24"
	PrefixLen = 24
	Netmask   = "255.255.255.0"

	// GatewayIP is the default router, the DNS and the DHCP server.
	GatewayIP  = "192.168.127.1"
	GatewayMAC = "5a:94:ef:e4:0c:dd"

	// GuestIP is the one address that a guest has, on the one network card.
	GuestIP  = "192.168.127.2"
	GuestMAC = "5a:94:ef:e4:0c:ee"

	// BroadcastIP is the directed broadcast address of Subnet.
	BroadcastIP = "192.168.127.255"

	// MetadataIP answers HTTP on MetadataPort for the guest's own machine.
	MetadataIP   = "169.254.169.254"
	MetadataPort = 80

	// MTU is the largest IP packet that a guest sends, in bytes. It fits through
	// any path outside, also in a tunnel.
	MTU = 1400

	// ReceiveMTU is the largest IP packet that the gateway sends to a guest that
	// asks for it, in bytes. No such packet leaves the host, so it only has to
	// suit the virtual network card. TCP uses it when the guest announces
	// AdvertisedMSS; Linux does so when its default route has that as "advmss".
	// Downloads cost a guest without hardware virtualization much less then.
	// A guest that does not announce it gets segments for MTU.
	ReceiveMTU    = 16000
	AdvertisedMSS = ReceiveMTU - 40
)
