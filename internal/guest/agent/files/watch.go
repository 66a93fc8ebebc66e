package files

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/agent/watch"
)

// Watch tells what changes in a directory until the caller leaves. It sees what the user
// may read.
func (Service) Watch(ctx context.Context, r *agentv1.WatchRequest, out *connect.ServerStream[agentv1.WatchEvent]) error {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return err
	}
	return WatchAs(ctx, path, r, id.do, out.Send)
}

// WatchAs watches path, which is absolute, with the rights that as gives.
func WatchAs(ctx context.Context, path string, r *agentv1.WatchRequest, as func(func() error) error, send func(*agentv1.WatchEvent) error) (err error) {
	w, err := watch.Open(path, watch.Options{Recursive: r.Recursive, As: as, Arriving: isTemporary})
	if err != nil {
		return watchFailed(path, err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := send(&agentv1.WatchEvent{Kind: &agentv1.WatchEvent_Started{Started: &agentv1.WatchStarted{}}}); err != nil {
		return err
	}
	err = w.Run(ctx, func(e watch.Event) error {
		if e.Overflow {
			return send(&agentv1.WatchEvent{Kind: &agentv1.WatchEvent_Overflow{Overflow: &agentv1.WatchOverflow{}}})
		}
		change := &agentv1.Change{Path: strings.ToValidUTF8(e.Path, "\uFFFD"), Type: e.Type}
		if r.Info && e.Type != watch.Remove && e.Type != watch.Rename {
			change.Info = look(filepath.Join(path, e.Path), as)
		}
		return send(&agentv1.WatchEvent{Kind: &agentv1.WatchEvent_Change{Change: change}})
	})
	if ctx.Err() != nil {
		return nil // its caller has left
	}
	return watchFailed(path, err)
}

// look describes what has changed, or returns nil when it is not there any more.
func look(path string, as func(func() error) error) *agentv1.FileInfo {
	var info *agentv1.FileInfo
	err := as(func() (err error) {
		info, err = stat(path, false)
		return err
	})
	if err != nil {
		return nil
	}
	info.Path = strings.ToValidUTF8(info.Path, "\uFFFD")
	info.LinkTarget = strings.ToValidUTF8(info.LinkTarget, "\uFFFD")
	return newNames().describe(info)
}

// watchFailed is fail for what only a watch can fail with.
func watchFailed(path string, err error) error {
	switch {
	case errors.Is(err, watch.ErrTooMany) || errors.Is(err, watch.ErrBusy):
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s: %w", path, err))
	case errors.Is(err, watch.ErrGone):
		gone := connect.NewError(connect.CodeNotFound, fmt.Errorf("%s: %w", path, err))
		gone.Meta().Set(errnoKey, "ENOENT")
		return gone
	}
	return fail(path, err)
}
