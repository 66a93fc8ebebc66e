package podflare

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/sandbox"
)

const (
	// regionHeader and regionPath are how a client names a region.
	regionHeader = "X-Podflare-Region"
	regionPath   = "/r/"
	// passedHeader marks a request that a server has passed on: it is not passed on again.
	passedHeader = "X-Ramet-Passed-On"
)

// Regions sends a request to the region that it names.
type Regions struct {
	// Local is the name of this server's region.
	Local string
	// Others are servers of other regions, by name.
	Others map[string]*url.URL
	Log    *slog.Logger
	// Refuse answers a request with an error.
	Refuse func(http.ResponseWriter, *http.Request, error)
	// Passing, when set, is told of a request that is passed on: its body may be long.
	Passing func(*http.Request)
}

// Handler serves the local region with next. What names a region that is not known is
// refused: a sandbox is never made in another place than the one that was asked for.
func (g *Regions) Handler(next http.Handler) http.Handler {
	proxies := make(map[string]*httputil.ReverseProxy, len(g.Others))
	for name, target := range g.Others {
		proxies[name] = g.proxy(name, target)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, path, named := split(r.URL.Path)
		if !named {
			name, path = strings.ToLower(strings.TrimSpace(r.Header.Get(regionHeader))), r.URL.Path
		}
		if name == "" && !named {
			next.ServeHTTP(w, r)
			return
		}
		if strings.EqualFold(name, g.Local) {
			next.ServeHTTP(w, at(r, path))
			return
		}
		proxy := proxies[name]
		switch {
		case r.Header.Get(passedHeader) != "":
			g.Refuse(w, r, sandbox.Errorf(sandbox.NotFound, "region_not_found",
				"region %q was asked for, and another server takes this one, which is region %s, for it; see the setting regions there", shown(name), g.Local))
		case proxy == nil:
			g.Refuse(w, r, sandbox.Errorf(sandbox.NotFound, "region_not_found", "region %q is not known here; %s", shown(name), g.known()))
		default:
			if g.Passing != nil {
				g.Passing(r)
			}
			proxy.ServeHTTP(w, at(r, path))
		}
	})
}

// split takes a region out of a path that begins with it.
func split(p string) (region, rest string, ok bool) {
	region, ok = strings.CutPrefix(p, regionPath)
	if !ok {
		return "", p, false
	}
	region, rest, _ = strings.Cut(region, "/")
	return strings.ToLower(region), "/" + rest, true
}

// at is the request with another path.
func at(r *http.Request, path string) *http.Request {
	if path == r.URL.Path {
		return r
	}
	to, u := *r, *r.URL
	u.Path, u.RawPath = path, ""
	to.URL = &u
	return &to
}

func (g *Regions) known() string {
	text := "this server is region " + g.Local
	if names := slices.Sorted(maps.Keys(g.Others)); len(names) > 0 {
		text += " and knows " + strings.Join(names, ", ")
	}
	return text
}

// proxy passes requests on as they are, with the caller's key, and streams answers as they come.
func (g *Regions) proxy(name string, target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set(regionHeader, name)
			p.Out.Header.Set(passedHeader, "1")
		},
		ModifyResponse: func(res *http.Response) error {
			// Which pages may read an answer says the server that was called; a browser takes no two of these.
			for name := range res.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					res.Header.Del(name)
				}
			}
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(g.Log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.Refuse(w, r, &sandbox.Error{
				Kind: sandbox.Unavailable, Code: "region_unreachable", Err: fmt.Errorf("reach region %s: %w", name, err),
				Message: fmt.Sprintf("the server of region %s cannot be reached; try again in a moment", name),
			})
		},
	}
}

// shown bounds a caller's text in a message.
func shown(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
