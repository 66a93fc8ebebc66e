package client

import (
	"context"
	"fmt"
	"io"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Stat says what a path of a sandbox is; symbolic links are followed.
func (c *Client) Stat(ctx context.Context, id, path string) (*v1.FileInfo, error) {
	follow := true
	resp, err := c.api.StatFile(ctx, id, &v1.StatFileParams{Path: path, Follow: &follow})
	return decode[v1.FileInfo](c, resp, err)
}

// ListFiles lists a directory of a sandbox.
func (c *Client) ListFiles(ctx context.Context, id, path string) ([]v1.FileInfo, error) {
	resp, err := c.api.ListFiles(ctx, id, &v1.ListFilesParams{Path: path})
	list, err := decode[v1.FileList](c, resp, err)
	if err != nil {
		return nil, err
	}
	return list.Files, nil
}

// ReadFile streams a file. size is -1 when the server does not tell it.
func (c *Client) ReadFile(ctx context.Context, id, path string) (body io.ReadCloser, size int64, err error) {
	resp, err := c.check(c.api.ReadFile(ctx, id, &v1.ReadFileParams{Path: path}))
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// WriteFile streams body into a file of a sandbox, which is replaced as a whole
// or not at all. mode is the permission bits.
func (c *Client) WriteFile(ctx context.Context, id, path string, mode uint32, body io.Reader) (*v1.FileInfo, error) {
	octal := fmt.Sprintf("%04o", mode)
	resp, err := c.api.WriteFileWithBody(ctx, id, &v1.WriteFileParams{Path: path, Mode: &octal}, "application/octet-stream", body)
	return decode[v1.FileInfo](c, resp, err)
}

// ReadArchive streams a file or directory of a sandbox as a tar.
func (c *Client) ReadArchive(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.body(c.api.ReadArchive(ctx, id, &v1.ReadArchiveParams{Path: path}))
}

// WriteArchive unpacks a tar into a directory of a sandbox, which is made when
// it is missing.
func (c *Client) WriteArchive(ctx context.Context, id, path string, tar io.Reader) (*v1.Extracted, error) {
	resp, err := c.api.WriteArchiveWithBody(ctx, id, &v1.WriteArchiveParams{Path: path}, "application/x-tar", tar)
	return decode[v1.Extracted](c, resp, err)
}
