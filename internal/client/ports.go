package client

import (
	"context"
	"fmt"

	"github.com/coder/websocket"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Ports lists the TCP ports that something listens on in a sandbox.
func (c *Client) Ports(ctx context.Context, id string) ([]int, error) {
	resp, err := c.api.ListPorts(ctx, id)
	list, err := decode[v1.PortList](c, resp, err)
	if err != nil {
		return nil, err
	}
	return list.Ports, nil
}

// ConnectPort connects to a TCP port of a sandbox. Package wstream says what the messages
// are. ctx bounds the connecting only.
func (c *Client) ConnectPort(ctx context.Context, id string, port int) (*websocket.Conn, error) {
	req, err := v1.NewConnectPortRequest(c.url, id, port)
	if err == nil {
		err = c.sign(ctx, req)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d: %w", port, err)
	}
	ws, resp, err := websocket.Dial(ctx, req.URL.String(), &websocket.DialOptions{
		HTTPClient: c.sockets, HTTPHeader: req.Header, CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		return ws, nil
	}
	if resp != nil && resp.StatusCode >= 300 { // it has an answer, and says why
		_, err = c.check(resp, nil)
		return nil, err
	}
	return nil, c.transportError(err)
}
