// Package client talks to a Ramet server: a thin layer on the generated client
// that turns answers into Go values and errors, follows streams, and pages
// through lists. It decides nothing and prints nothing. Start reading at
// Client; streams are in stream.go.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Client calls one server. It is safe for concurrent use.
type Client struct {
	api *v1.Client
	url string
	// sockets is for WebSockets, which are HTTP/1.1; sign prepares every request.
	sockets *http.Client
	sign    v1.RequestEditorFn
}

// Error is an answer outside 2xx.
type Error struct {
	Status    int    // HTTP status; 0 for an error inside a stream
	Code      string // stable word, "" when the answer was not one of Ramet's
	Message   string // one sentence
	RequestID string
}

func (e *Error) Error() string { return e.Message }

// UnreachableError says that no server answered at all.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no server answers at %s: %v", e.URL, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// maxJSON bounds a JSON answer that is read into memory, in bytes.
const maxJSON = 64 << 20

// Option changes how a Client reaches its server.
type Option func(*http.Transport)

// WithTLS sets how the server proves who it is.
func WithTLS(cfg *tls.Config) Option {
	return func(t *http.Transport) { t.TLSClientConfig = cfg }
}

// WithoutProxy calls the server directly, whatever the environment says.
func WithoutProxy() Option {
	return func(t *http.Transport) { t.Proxy = nil }
}

// New returns a client of the server at base. An empty key sends no
// Authorization header. userAgent names the program.
func New(base, key, userAgent string, options ...Option) (*Client, error) {
	// Calls last as long as the code that they run, so there is no timeout for
	// a whole call; contexts and the keep-alives of streams bound them.
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		// The default of 4 KiB costs uploads and downloads half their speed.
		WriteBufferSize: 64 << 10,
		ReadBufferSize:  64 << 10,
	}
	for _, change := range options {
		change(transport)
	}
	sign := func(ctx context.Context, req *http.Request) error {
		if ctx.Value(noWakeKey{}) != nil {
			req.Header.Set("X-Ramet-Wake", "never")
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		req.Header.Set("User-Agent", userAgent)
		return nil
	}
	api, err := v1.NewClient(base, v1.WithHTTPClient(&http.Client{Transport: transport}), v1.WithRequestEditorFn(sign))
	if err != nil {
		return nil, fmt.Errorf("use the server at %s: %w", base, err)
	}
	only1 := transport.Clone()
	only1.ForceAttemptHTTP2, only1.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	return &Client{api: api, url: base, sockets: &http.Client{Transport: only1}, sign: sign}, nil
}

// URL returns the server's base URL.
func (c *Client) URL() string { return c.url }

// check turns the outcome of a generated call into an open, successful answer
// or an error.
func (c *Client) check(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, c.transportError(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // whatever came is used
	var body v1.Error
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/json" && json.Unmarshal(b, &body) == nil && body.Error != "" {
		e.Code, e.Message = body.Code, body.Error
		if body.RequestId != "" {
			e.RequestID = body.RequestId
		}
		return nil, e
	}
	e.Message = fmt.Sprintf("%s answered %s, and not as a Ramet server does", c.url, resp.Status)
	return nil, e
}

// transportError tells a server that is not there from a connection that broke.
func (c *Client) transportError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial") {
		return &UnreachableError{URL: c.url, Err: cause(err)}
	}
	return fmt.Errorf("call %s: %w", c.url, cause(err))
}

// cause strips the method and URL that net/http puts in front: the URL of a
// call may be long and helps nobody.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// decode reads a JSON answer into a T.
func decode[T any](c *Client, resp *http.Response, err error) (*T, error) {
	resp, err = c.check(resp, err)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	v := new(T)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(v); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.url, cause(err))
	}
	return v, nil
}

// none expects an answer without a body.
func (c *Client) none(resp *http.Response, err error) error {
	resp, err = c.check(resp, err)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Health asks whether a Ramet server answers. It needs no key.
func (c *Client) Health(ctx context.Context) error { return c.none(c.api.GetHealth(ctx)) }

// Info describes the server.
func (c *Client) Info(ctx context.Context) (*v1.Info, error) {
	resp, err := c.api.GetInfo(ctx)
	return decode[v1.Info](c, resp, err)
}

// Capacity says what the server keeps ready, and how creates were served.
func (c *Client) Capacity(ctx context.Context) (*v1.Capacity, error) {
	resp, err := c.api.GetCapacity(ctx)
	return decode[v1.Capacity](c, resp, err)
}

// Create creates a sandbox and waits until it runs.
func (c *Client) Create(ctx context.Context, req v1.SandboxCreate) (*v1.Sandbox, error) {
	resp, err := c.api.CreateSandbox(ctx, nil, req)
	return decode[v1.Sandbox](c, resp, err)
}

// Get returns one sandbox.
func (c *Client) Get(ctx context.Context, id string) (*v1.Sandbox, error) {
	resp, err := c.api.GetSandbox(ctx, id)
	return decode[v1.Sandbox](c, resp, err)
}

// Update changes the settings of a sandbox.
func (c *Client) Update(ctx context.Context, id string, u v1.SandboxUpdate) (*v1.Sandbox, error) {
	resp, err := c.api.UpdateSandbox(ctx, id, u)
	return decode[v1.Sandbox](c, resp, err)
}

// SetEgress replaces what a sandbox may reach.
func (c *Client) SetEgress(ctx context.Context, id string, set v1.EgressSet) (*v1.Sandbox, error) {
	resp, err := c.api.SetEgress(ctx, id, set)
	return decode[v1.Sandbox](c, resp, err)
}

// Delete deletes a sandbox and waits until all of it is gone.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.none(c.api.DeleteSandbox(ctx, id))
}

// ListFilter narrows a list of sandboxes.
type ListFilter struct {
	Status   string   // "" leaves stopped ones out, "any" shows all
	Template string   // "" all
	Metadata []string // "key=value", all must match
}

// Sandboxes yields all sandboxes, newest first, page by page. It ends after
// the first error.
func (c *Client) Sandboxes(ctx context.Context, f ListFilter) iter.Seq2[*v1.Sandbox, error] {
	return func(yield func(*v1.Sandbox, error) bool) {
		limit := 200
		p := v1.ListSandboxesParams{Limit: &limit}
		if f.Status != "" {
			p.Status = &f.Status
		}
		if f.Template != "" {
			p.Template = &f.Template
		}
		if len(f.Metadata) > 0 {
			p.Metadata = &f.Metadata
		}
		for {
			resp, err := c.api.ListSandboxes(ctx, &p)
			page, err := decode[v1.SandboxList](c, resp, err)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Sandboxes {
				if !yield(&page.Sandboxes[i], nil) {
					return
				}
			}
			if page.NextCursor == nil || *page.NextCursor == "" || len(page.Sandboxes) == 0 {
				return
			}
			p.Cursor = page.NextCursor
		}
	}
}

// Console returns the last lines of a sandbox's serial console.
func (c *Client) Console(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.body(c.api.GetConsole(ctx, id))
}

// Usage says what sandboxes and templates cost the host.
func (c *Client) Usage(ctx context.Context) (*v1.Usage, error) {
	resp, err := c.api.GetUsage(ctx)
	return decode[v1.Usage](c, resp, err)
}

// ServerMetrics returns the server's metrics in Prometheus' text format.
func (c *Client) ServerMetrics(ctx context.Context) (io.ReadCloser, error) {
	return c.body(c.api.GetServerMetrics(ctx))
}

// Backup returns a backup of the server's records. Whoever has it has the server's own key.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	return c.body(c.api.GetBackup(ctx))
}

func (c *Client) body(resp *http.Response, err error) (io.ReadCloser, error) {
	resp, err = c.check(resp, err)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Metrics says what a sandbox uses.
func (c *Client) Metrics(ctx context.Context, id string) (*v1.Metrics, error) {
	resp, err := c.api.GetMetrics(ctx, id)
	return decode[v1.Metrics](c, resp, err)
}

// Templates lists the templates that are built.
func (c *Client) Templates(ctx context.Context) ([]v1.Template, error) {
	list, err := c.TemplateList(ctx)
	if err != nil {
		return nil, err
	}
	return list.Templates, nil
}

// TemplateList lists the templates that are built, and those whose builds are under way or failed.
func (c *Client) TemplateList(ctx context.Context) (*v1.TemplateList, error) {
	resp, err := c.api.ListTemplates(ctx)
	return decode[v1.TemplateList](c, resp, err)
}

// DeleteTemplate deletes a template that nothing stands on.
func (c *Client) DeleteTemplate(ctx context.Context, name string) error {
	return c.none(c.api.DeleteTemplate(ctx, name))
}

// Keys lists the API keys of a project; "" is the caller's own.
func (c *Client) Keys(ctx context.Context, project string) ([]v1.Key, error) {
	resp, err := c.api.ListKeys(ctx, &v1.ListKeysParams{Project: optional(project)})
	list, err := decode[v1.KeyList](c, resp, err)
	if err != nil {
		return nil, err
	}
	return list.Keys, nil
}

// CreateKey makes an API key of a project; "" is the caller's own. The format is that of
// its secret, "" for our own. The answer is the only place that ever holds the secret.
func (c *Client) CreateKey(ctx context.Context, name, project, format string) (*v1.KeyCreated, error) {
	resp, err := c.api.CreateKey(ctx, nil, v1.KeyCreate{Name: optional(name), Project: optional(project), Format: optional(format)})
	return decode[v1.KeyCreated](c, resp, err)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Projects lists the projects that the key may see.
func (c *Client) Projects(ctx context.Context) ([]v1.Project, error) {
	resp, err := c.api.ListProjects(ctx)
	list, err := decode[v1.ProjectList](c, resp, err)
	if err != nil {
		return nil, err
	}
	return list.Projects, nil
}

// Project returns one project.
func (c *Client) Project(ctx context.Context, name string) (*v1.Project, error) {
	resp, err := c.api.GetProject(ctx, name)
	return decode[v1.Project](c, resp, err)
}

// SetProject makes a project or changes its quota.
func (c *Client) SetProject(ctx context.Context, name string, set v1.ProjectSet) (*v1.Project, error) {
	resp, err := c.api.SetProject(ctx, name, set)
	return decode[v1.Project](c, resp, err)
}

// DeleteKey revokes an API key.
func (c *Client) DeleteKey(ctx context.Context, id string) error {
	return c.none(c.api.DeleteKey(ctx, id))
}
