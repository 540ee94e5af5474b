package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// daemonFlags say which process serves what a command needs.
type daemonFlags struct {
	url       string
	tokenFile string
	data      string
}

func (f *daemonFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "url", "", "address of the process that serves (default: what the data directory says)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with its token (default $OSSICLE_TOKEN, else that of the data directory)")
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
}

// daemonClient calls the API of one process, or of none: then it looks into
// the store itself.
type daemonClient struct {
	base, token string
	http        *http.Client
	offline     bool
	done        func() error
}

// errNoServer ends what only a process that serves can do.
var errNoServer = fmt.Errorf("no process serves: %w", errUnreachable)

// noServerError is errNoServer, with where was looked.
type noServerError struct{ data string }

func (e *noServerError) Error() string {
	return fmt.Sprintf("no process serves from the data directory %s; start one with 'ossicle serve', or name another by --data or --url", e.data)
}

func (*noServerError) Unwrap() error { return errNoServer }

// noServer says why nobody was found: that no one serves cannot be known of a
// directory whose token may not be read.
func noServer(data string, token error) error {
	if errors.Is(token, fs.ErrPermission) {
		return &usageError{fmt.Errorf("find the process that serves: %w; run this as the user who serves, or give --url and a token of 'ossicle token create'", token)}
	}
	return &noServerError{data}
}

// readable opens a file, and returns what stands against it.
func readable(path string) error {
	f, err := os.Open(path) //nolint:gosec // of the person's own directory
	if err != nil {
		return err
	}
	return f.Close()
}

// EnvToken is the bearer token for a daemon that is not on this machine.
const EnvToken = "OSSICLE_TOKEN" //nolint:gosec // a name

// home is the data directory.
func (f *daemonFlags) home(c *config.Config) string {
	if f.data != "" {
		return f.data
	}
	return c.Home
}

// find returns the address and the token of the process that serves a session,
// or with an empty id of the daemon: those that are given, else those of the data
// directory. The token of the data directory is for its own processes; it is
// never sent to an address that was given, and to one that may be anybody's only
// what --token-file names.
func (f *daemonFlags) find(ctx context.Context, e *env, address, id string) (target, token string, err error) {
	c, err := e.load()
	if err != nil {
		return "", "", err
	}
	if address == "" {
		address = f.url
	}
	if err := checkAddress(address); err != nil {
		return "", "", err
	}
	ours := address == ""
	if !ours && address != f.url { // a stream that may be anybody's
		token, err = f.fileToken(f.tokenFile)
		return address, token, err
	}
	if ours {
		if address = app.FindServer(ctx, f.home(c), id); address == "" {
			return "", "", noServer(f.home(c), readable(filepath.Join(f.home(c), app.TokenName)))
		}
	}
	token, err = f.token(e, c, ours)
	return address, token, err
}

// checkAddress refuses what is no address of a server; empty is none.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &usageError{fmt.Errorf("read address %.120q: give that of a server, http://HOST or https://HOST", address)}
	}
	return nil
}

// token returns the token for a process, which is ours if the data directory
// knows it.
func (f *daemonFlags) token(e *env, c *config.Config, ours bool) (string, error) {
	file := f.tokenFile
	if token, _ := e.getenv(EnvToken); token != "" && file == "" {
		return token, nil
	}
	if file == "" && ours {
		file = filepath.Join(f.home(c), app.TokenName)
	}
	return f.fileToken(file)
}

// fileToken reads a token; no file is no token.
func (*daemonFlags) fileToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	token, err := httpserver.ReadTokenFile(file)
	if err != nil {
		return "", &usageError{err}
	}
	return token, nil
}

// client is a client of the daemon.
func (f *daemonFlags) client(ctx context.Context, e *env) (*daemonClient, error) {
	address, token, err := f.find(ctx, e, "", "")
	if err != nil {
		return nil, err
	}
	return newDaemonClient(address, token), nil
}

func newDaemonClient(address, token string) *daemonClient {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	return &daemonClient{base: strings.TrimRight(address, "/"), token: token, http: client, done: func() error { return nil }}
}

// open finds the process that serves a session; an empty id means the daemon.
func (f *daemonFlags) open(ctx context.Context, e *env, id string, mayBeOffline bool) (*daemonClient, error) {
	c, err := e.load()
	if err != nil {
		return nil, err
	}
	address, token, err := f.find(ctx, e, "", id)
	if err == nil {
		return newDaemonClient(address, token), nil
	}
	if !errors.Is(err, errNoServer) {
		return nil, err
	}
	if !mayBeOffline {
		return nil, err
	}
	h, done, offline := app.OfflineAPI(ctx, c, f.home(c))
	if errors.Is(offline, fs.ErrNotExist) {
		return nil, err
	}
	err = offline
	if err != nil {
		return nil, err
	}
	return &daemonClient{base: "http://offline", http: &http.Client{Transport: handlerTransport{h}}, offline: true, done: done}, nil
}

// call makes a request and decodes the answer into out, which may be nil.
func (c *daemonClient) call(ctx context.Context, method, path string, in, out any) error {
	body, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("read answer of %s: %w", path, err)
	}
	return nil
}

// pathSegment escapes a name for a path. Dots alone would be directories to
// whoever handles the path on its way, and ask for something else than was named.
func pathSegment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// send makes a request and returns the body of a good answer.
func (c *daemonClient) send(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var payload io.Reader = http.NoBody
	if in != nil {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false) // what is sent has its bounds, and no browser reads it
		if err := enc.Encode(in); err != nil {
			return nil, err
		}
		payload = &text
	}
	return c.sendBody(ctx, method, path, http.Header{"Content-Type": {"application/json"}}, payload)
}

// sendBody makes a request with headers and a body.
func (c *daemonClient) sendBody(ctx context.Context, method, path string, header http.Header, payload io.Reader) (io.ReadCloser, error) {
	if name, _, _ := strings.Cut(path, "?"); strings.Contains(name, "//") || strings.HasSuffix(name, "/") {
		return nil, &usageError{errors.New("the name is empty")}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--url: %w", err)}
	}
	req.Header = header
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var p httpserver.Problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Detail == "" {
		return nil, fmt.Errorf("%s %.120s: HTTP status %d", method, path, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		p.Detail = c.unauthorized()
		return nil, &p
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return nil, &usageError{&p}
	case http.StatusUnprocessableEntity:
		return nil, &agentError{err: &p, output: lastOf(p.Output)}
	}
	return nil, &p
}

// unauthorized says which token was refused, and where another one comes from.
func (c *daemonClient) unauthorized() string {
	return refusedToken(c.token != "", c.base)
}

// refusedToken names the address without what may be secret in it.
func refusedToken(given bool, address string) string {
	if u, err := url.Parse(address); err == nil {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		address = u.String()
	}
	if !given {
		return fmt.Sprintf("%.200s asks for a token: give --token-file; 'ossicle token create' makes one there", address)
	}
	return fmt.Sprintf("%.200s refuses the token: it was not given out there, or has ended. It is that of --token-file, else of $%s, else of the data directory", address, EnvToken)
}

// handlerTransport answers requests in this process.
type handlerTransport struct{ h http.Handler }

// RoundTrip implements http.RoundTripper.
func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &bufferedResponse{header: http.Header{}, status: http.StatusOK}
	t.h.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *bufferedResponse) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *bufferedResponse) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *bufferedResponse) Write(p []byte) (int, error) { return w.body.Write(p) }
