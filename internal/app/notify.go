package app

import (
	"fmt"
	"net"
	"os"
	"time"
)

// notifyTimeout bounds how long a service manager that does not read is waited for.
const notifyTimeout = 5 * time.Second

// tellManager sends a state to the service manager that started this process,
// in the protocol of sd_notify(3). Without one it does nothing.
func tellManager(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	// A name that begins with "@" is an abstract one; package net spells those so too.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("reach the service manager: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}
