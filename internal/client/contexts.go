package client

import (
	"context"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// CreateContext starts an interpreter in a sandbox.
func (c *Client) CreateContext(ctx context.Context, id string, req v1.ContextCreate) (*v1.Context, error) {
	resp, err := c.api.CreateContext(ctx, id, req)
	return decode[v1.Context](c, resp, err)
}

// Contexts lists the interpreters of a sandbox.
func (c *Client) Contexts(ctx context.Context, id string) ([]v1.Context, error) {
	resp, err := c.api.ListContexts(ctx, id)
	list, err := decode[v1.ContextList](c, resp, err)
	if err != nil {
		return nil, err
	}
	return list.Contexts, nil
}

// RestartContext replaces an interpreter, whose state is lost.
func (c *Client) RestartContext(ctx context.Context, id, name string) (*v1.Context, error) {
	resp, err := c.api.RestartContext(ctx, id, name)
	return decode[v1.Context](c, resp, err)
}

// DeleteContext ends an interpreter.
func (c *Client) DeleteContext(ctx context.Context, id, name string) error {
	return c.none(c.api.DeleteContext(ctx, id, name))
}
