package envd

import (
	"context"
	"time"

	"connectrpc.com/connect"
)

// patient is an interceptor that keeps the limits of clients from the calls to guests. Those would
// tell the guest's agent, which would end them a moment before we do, and a guest that ends calls looks
// like one that does not answer. The context ends at the limit all the same, with it as its cause.
type patient struct{}

type deadlineKey struct{}

// deadlineOf returns the limit that the client of a call has set.
func deadlineOf(ctx context.Context) (time.Time, bool) {
	t, ok := ctx.Value(deadlineKey{}).(time.Time)
	return t, ok
}

func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	out := context.WithoutCancel(ctx)
	if t, ok := ctx.Deadline(); ok {
		out = context.WithValue(out, deadlineKey{}, t)
	}
	out, cancel := context.WithCancelCause(out)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return out, func() { stop(); cancel(nil) }
}

// WrapUnary implements connect.Interceptor.
func (patient) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, end := withoutDeadline(ctx)
		defer end()
		return next(ctx, r)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (patient) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (patient) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, end := withoutDeadline(ctx)
		defer end()
		return next(ctx, conn)
	}
}
