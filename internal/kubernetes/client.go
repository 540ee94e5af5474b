package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
)

const (
	// DefaultRequestTime bounds one request, its answer included.
	DefaultRequestTime = 10 * time.Second

	// The pause before a request is made again doubles from the one to the other.
	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
	// maxTries bounds how often a request is made.
	maxTries = 6

	maxAnswer = 4 << 20  // bytes of an object
	maxList   = 32 << 20 // bytes of a page of a list
	maxRefuse = 64 << 10 // bytes of an answer that says no
)

// resources, with the API that each is part of. Authorization is not namespaced.
var apis = map[string]string{
	"networkpolicies":          "/apis/networking.k8s.io/v1",
	"secrets":                  "/api/v1",
	"pods":                     "/api/v1",
	"events":                   "/api/v1",
	"jobs":                     "/apis/batch/v1",
	"selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1",
}

// request is one request to the API.
type request struct {
	op       string // for errors: "create job"
	method   string
	resource string
	name     string
	query    url.Values
	body     any
	patch    bool // body is a merge patch
	most     int64
}

// client makes requests. It finds out where to and as whom when it makes the
// first, and again after the cluster did not accept who we were.
type client struct {
	load      func() (*access, error)
	namespace string            // empty: what the configuration says
	over      http.RoundTripper // nil: a transport of our own
	agent     string
	timeout   time.Duration
	log       *slog.Logger

	mu   sync.Mutex
	live *connection
}

// connection is an access in use.
type connection struct {
	*access
	namespace string
	http      *http.Client
	idle      func()
}

// connect returns the connection, made if there is none.
func (c *client) connect() (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		return c.live, nil
	}
	a, err := c.load()
	if err != nil {
		return nil, err
	}
	conn := &connection{access: a, namespace: c.namespace, idle: func() {}}
	if conn.namespace == "" {
		conn.namespace = a.namespace
	}
	if conn.namespace == "" {
		conn.namespace = "default"
	}
	if !isName(conn.namespace) {
		return nil, fmt.Errorf("configure cluster: namespace %q is no name", conn.namespace)
	}
	over := c.over
	if over == nil {
		t := a.transport()
		over, conn.idle = t, t.CloseIdleConnections
	}
	conn.http = &http.Client{
		Transport: over,
		// A token must not go where an answer points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.live = conn
	return conn, nil
}

// renew has the next request find out anew who we are.
func (c *client) renew(conn *connection) {
	if conn.forget != nil {
		conn.forget()
		return
	}
	c.drop(conn)
}

// drop has the next request read the configuration anew.
func (c *client) drop(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == conn {
		c.live = nil
		conn.idle()
	}
}

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		c.live.idle()
		c.live = nil
	}
}

// do makes a request and reads its answer into out, unless that is nil. What may
// go better a moment later is tried again, as long as ctx has time; the number of
// tries is returned, for who must know whether an earlier one was done.
func (c *client) do(ctx context.Context, r request, out any) (tries int, err error) {
	renewed := false
	for {
		tries++
		var pause time.Duration
		if pause, err = c.once(ctx, r, out); err == nil {
			return tries, nil
		}
		if errors.Is(err, ErrUnauthorized) && !renewed {
			renewed = true // by once
			continue
		}
		if pause < 0 || tries >= maxTries {
			return tries, err
		}
		pause = max(pause, backoff(tries))
		if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
			return tries, err // it would end in the pause, and say less
		}
		c.log.DebugContext(ctx, "a request is made again", logattr.Reason(r.op), logattr.Attempt(tries), logattr.Delay(pause), logattr.Err(err))
		if !supervise.Sleep(ctx, pause) {
			return tries, err
		}
	}
}

// backoff is the pause after so many failures; up to half of it is random.
func backoff(failures int) time.Duration {
	d := min(leastPause<<min(failures-1, 16), mostPause)
	return d - rand.N(d/2)
}

// once makes a request once. pause is negative for an error that would be the same
// again, and else how long to wait at least.
func (c *client) once(ctx context.Context, r request, out any) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, ErrTimeout)
	defer cancel()
	answer, err := c.open(ctx, r)
	if err != nil {
		return pauseOf(err), err
	}
	defer func() { _ = answer.Body.Close() }()
	most := r.most
	if most == 0 {
		most = maxAnswer
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return 0, failed(ctx, r.op, err)
	case int64(len(body)) > most:
		return -1, fmt.Errorf("%s: the answer has more than %d bytes", r.op, most)
	case out == nil:
		return 0, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return -1, fmt.Errorf("%s: read answer: %w", r.op, err)
	}
	return 0, nil
}

// pauseOf is the pause that an error asks for; negative if it is final.
func pauseOf(err error) time.Duration {
	var refused *APIError
	if errors.As(err, &refused) {
		if refused.passes() {
			return refused.RetryAfter
		}
		return -1
	}
	if errors.Is(err, ErrTimeout) || errors.Is(err, ErrUnreachable) {
		return 0
	}
	return -1
}

// open makes a request and returns an answer that says yes, whose body is the
// caller's to read and close within ctx.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	conn, err := c.connect()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	req, err := conn.request(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	req.Header.Set("User-Agent", c.agent)
	answer, err := conn.http.Do(req)
	if err != nil {
		if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
			c.drop(conn) // the cluster's authority may be another by now
		}
		return nil, failed(ctx, r.op, err)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefuse)) // what there is says enough
	refused := refusal(r.op, answer.StatusCode, answer.Header, body)
	if answer.StatusCode == http.StatusUnauthorized {
		c.renew(conn)
	}
	return nil, refused
}

// request builds it, with the credentials of now.
func (a *connection) request(ctx context.Context, r request) (*http.Request, error) {
	path := apis[r.resource]
	if r.resource != "selfsubjectaccessreviews" {
		path += "/namespaces/" + a.namespace
	}
	path += "/" + r.resource
	if r.name != "" {
		path += "/" + r.name
	}
	u := *a.base
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+path, r.query.Encode()
	var body io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body, json.Deterministic(true))
		if err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
		body = strings.NewReader(string(b))
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	switch {
	case r.patch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if a.bearer != nil {
		token, err := a.bearer(ctx)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// failed is an error of the connection: that the time was over, or whatever broke.
func failed(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, context.DeadlineExceeded) {
			cause = ErrTimeout
		}
		return fmt.Errorf("%s: %w", op, cause)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%s: %w: %w", op, ErrUnreachable, err)
}
