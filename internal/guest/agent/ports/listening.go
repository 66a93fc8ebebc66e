package ports

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// maxTable bounds what is read of one of the kernel's tables, in bytes. Sockets that
// listen come first in them, before the connections.
const maxTable = 16 << 20

// listenState is TCP_LISTEN as the tables say it.
const listenState = "0A"

// Listening lists the TCP ports that something listens on, in order.
func (s *Service) Listening(ctx context.Context, _ *agentv1.ListeningRequest) (*agentv1.ListeningResponse, error) {
	open := make([]bool, 1<<16)
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(s.tables, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err == nil {
			err = errors.Join(readTable(ctx, f, open), f.Close())
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("list the ports: %w", err))
		}
	}
	out := &agentv1.ListeningResponse{}
	for port, is := range open {
		if is {
			out.Ports = append(out.Ports, uint32(port))
		}
	}
	return out, nil
}

// readTable marks the ports of sockets that listen. The table is text with a line for
// each socket: number, local and remote address as hex, state.
func readTable(ctx context.Context, r io.Reader, open []bool) error {
	lines := bufio.NewScanner(io.LimitReader(r, maxTable))
	for n := 0; lines.Scan(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != listenState {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			open[port] = true
		}
	}
	return lines.Err()
}
