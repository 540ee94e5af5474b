package wake

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/notice"
)

const (
	httpTimeout = 30 * time.Second // for an answer that is not a stream
	maxAnswer   = 16 << 20         // bytes of an answer that is read
	maxDetail   = 512              // bytes of an answer that is kept for the doctor
	maxEvent    = 16 << 20         // bytes of one server-sent event
	// busyRetry is when a host that said that it is busy is asked again. Most
	// hosts have no way to tell us that they became idle.
	busyRetry = 10 * time.Second
)

// api is an HTTP API of a host.
type api struct {
	base   string
	client *http.Client
	header http.Header
}

// newAPI returns the API at base. Redirects are not followed: a host has one
// address, and what it is sent is not for others. Connections are not kept, so
// that an adapter needs no end.
func newAPI(base, user, password string) (*api, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("check address %q: it is no http or https URL", base)
	}
	a := &api{base: strings.TrimSuffix(base, "/"), header: http.Header{}}
	if password != "" {
		a.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	a.client = &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a, nil
}

// do sends body, if any, as JSON and returns the answer. An answer that is no
// 2xx is a *notice.HostError. Without an answer the error is ErrUncertain if the
// host was reached with something that it acts on.
func (a *api) do(ctx context.Context, op, method, path string, body any) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, payload)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, a.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := send(a.client, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if res.StatusCode/100 != 2 {
		detail, _ := io.ReadAll(io.LimitReader(res.Body, maxDetail))
		_ = res.Body.Close()
		return nil, &notice.HostError{Op: op, Code: res.StatusCode, Detail: string(detail)}
	}
	return res, nil
}

// send does a request. A request that acts and had a connection may have
// arrived, whatever became of the answer.
func send(client *http.Client, req *http.Request) (*http.Response, error) {
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	res, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	switch {
	case err == nil:
		return res, nil
	case connected && req.Method == http.MethodPost:
		return nil, fmt.Errorf("%w (%w)", withoutURL(err), notice.ErrUncertain)
	}
	return nil, withoutURL(err)
}

// withoutURL keeps addresses, which may hold secrets, out of errors.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// call is do with an answer in JSON, which must come in time.
func (a *api) call(ctx context.Context, op, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	res, err := a.do(ctx, op, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if answer == nil { // the status says it all
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil && json.Unmarshal(b, answer) != nil {
		err = errors.New("it is not what was expected") // json's own words may quote us
	}
	switch {
	case err == nil:
		return nil
	case method == http.MethodPost:
		return fmt.Errorf("%s: read answer: %w (%w)", op, err, notice.ErrUncertain)
	}
	return fmt.Errorf("%s: read answer: %w", op, err)
}

// stream is an event stream of a host.
type stream struct {
	body   io.Closer
	events *listen.EventReader
}

func (a *api) stream(ctx context.Context, op, path string) (*stream, error) {
	res, err := a.do(ctx, op, http.MethodGet, path, nil) //nolint:bodyclose // the stream's close does
	if err != nil {
		return nil, err
	}
	return &stream{body: res.Body, events: listen.NewEventReader(res.Body, maxEvent)}, nil
}

func (s *stream) close() { _ = s.body.Close() }

// trouble turns an error of a host's API into a finding.
func trouble(err error, absent string) notice.Check {
	var host *notice.HostError
	switch {
	case !errors.As(err, &host):
		return bad("server", err.Error(), absent)
	case host.Code == http.StatusUnauthorized, host.Code == http.StatusForbidden:
		return bad("server", host.Error(), "give the password that the server was started with")
	}
	return bad("server", host.Error()+": "+host.Detail, "look at the server's log")
}
