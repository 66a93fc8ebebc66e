package network

import (
	"context"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"ramet.dev/ramet/internal/network/layout"
)

// serviceConns bounds the connections of the guest to one service of its
// gateway.
const serviceConns = 64

// serveMetadata serves h to this guest at 169.254.169.254:80.
func (g *Gateway) serveMetadata(h http.Handler) error {
	l, err := listenTCP(g.stack, metadataAddr, layout.MetadataPort)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !g.begin() {
				return
			}
			defer g.work.Done()
			h.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return g.ctx },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(discard{}, "", 0), // the guest must not write our log
	}
	stop := closeOnDone(g, func() {
		l.Shutdown()
		srv.Close()
	})
	g.work.Go(func() {
		defer stop()
		// Serve returns only because the gateway ends.
		if err := srv.Serve(netutil.LimitListener(l, serviceConns)); g.ctx.Err() == nil {
			g.log.Warn("metadata service ended", "err", err)
		}
	})
	return nil
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// closeOnDone runs f when the gateway ends, unless stop is called before.
func closeOnDone(g *Gateway, f func()) (stop func() bool) {
	return context.AfterFunc(g.ctx, f)
}
