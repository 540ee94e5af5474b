package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/supervise"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/worker"
)

const (
	// createTime bounds Create, and cleanTime what it does to leave nothing behind.
	createTime = 30 * time.Second
	cleanTime  = 10 * time.Second
	// deleteTime bounds Delete.
	deleteTime = 20 * time.Second
)

// Options configure a [Driver]. The zero value is usable in a pod.
type Options struct {
	Logger *slog.Logger // nil discards
	// Kubeconfig is a file that says where the cluster is and who we are; empty is
	// the service account of the pod that we run in.
	Kubeconfig string
	// Context is one of the file; empty is its current one.
	Context string
	// Namespace is where sandboxes are made; empty is that of the context or of our
	// pod. One that has nothing else is best.
	Namespace string
	// RequestTime bounds one request to the API.
	RequestTime time.Duration
	// Exited is told once when a sandbox of the namespace is over, or when one that
	// this driver made is given up because it cannot begin. Other gateways' sessions
	// are told, too: whoever does not know one ignores it. It must not block.
	Exited func(session string, e Exit)
	// Noted is told what keeps a sandbox from beginning, and that it has two pods.
	// Nil logs it. It must not block.
	Noted func(session string, n Note)
	// Getenv looks a variable up; nil is os.LookupEnv.
	Getenv func(string) (string, bool)
	// Transport makes the requests; nil is one that the configuration asks for.
	Transport http.RoundTripper
}

// Driver makes sandboxes in a namespace of a cluster. It implements
// worker.Sandboxes and is safe for concurrent use.
//
// The first Create, or Watch, starts four goroutines: a watch of Jobs, one of pods,
// one of events, and one that takes what they see. Close ends them. Sandboxes stay: they
// are their sessions', and another gateway may serve those by then.
type Driver struct {
	gateway Gateway
	o       Options
	c       *client
	health  supervise.Health
	changes chan change
	tells   chan func(*tracker)
	ended   chan struct{} // closed by Close

	mu      sync.Mutex
	cancel  context.CancelFunc // not nil: the goroutines run
	closed  bool
	running sync.WaitGroup
}

// New returns a driver of sandboxes that reach the gateway at g. It makes no
// request, and reads no file: that is for the first use, or for Check.
func New(g Gateway, o *Options) (*Driver, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	d := &Driver{gateway: g, changes: make(chan change), tells: make(chan func(*tracker)), ended: make(chan struct{})}
	if o != nil {
		d.o = *o
	}
	if d.o.Logger == nil {
		d.o.Logger = slog.New(slog.DiscardHandler)
	}
	if d.o.Getenv == nil {
		d.o.Getenv = os.LookupEnv
	}
	if d.o.Namespace != "" && !isName(d.o.Namespace) {
		return nil, fmt.Errorf("make kubernetes driver: namespace %q is no name", d.o.Namespace)
	}
	d.c = &client{
		namespace: d.o.Namespace, over: d.o.Transport, log: d.o.Logger,
		timeout: cmp.Or(d.o.RequestTime, DefaultRequestTime), agent: version.Name + "/" + version.Number(),
		load: func() (*access, error) {
			if d.o.Kubeconfig != "" {
				return fileAccess(d.o.Kubeconfig, d.o.Context)
			}
			return podAccess(accountDir, d.o.Getenv)
		},
	}
	return d, nil
}

// Create makes the sandbox of a session: first the policy of the namespace, then
// the Secret, then the Job. It returns when the cluster has taken the Job; that the
// worker calls home is the gateway's to see, and what keeps it from that is told to
// Exited and Noted. If it fails, nothing is left of it. Errors: ErrForbidden,
// ErrQuota, ErrExists, ErrInvalid, ErrNotFound, ErrUnauthorized, ErrBusy,
// ErrTimeout, ErrUnreachable, ErrNoCluster, ErrClosed, or what is wrong with the
// Spec.
func (d *Driver) Create(ctx context.Context, s Spec) error {
	start := time.Now()
	if err := s.validate(d.gateway); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, createTime, ErrTimeout)
	defer cancel()
	conn, err := d.c.connect()
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	m, err := build(conn.namespace, d.gateway, s, strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return err
	}
	if err := d.Watch(); err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	if err := d.ensurePolicy(ctx, buildPolicy(conn.namespace, d.gateway)); err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	// Who waits for the worker should hear why it does not come a little before it
	// would have come too late.
	dial := s.Profile.Dial
	d.tell(ctx, func(t *tracker) { t.expect(s.Session, start.Add(dial-max(dial/10, time.Second))) })
	if err := d.make(ctx, m); err != nil {
		return errors.Join(fmt.Errorf("create sandbox: %w", redact(err, s.Token)), d.clean(ctx, m, s.Session, err))
	}
	return nil
}

// clean leaves nothing of a sandbox that could not be made, after err. A Job that
// was there before is not ours to delete.
func (d *Driver) clean(ctx context.Context, m manifests, session string, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, ErrTimeout)
	defer cancel()
	if !errors.Is(err, ErrExists) {
		return d.Delete(ctx, session)
	}
	d.tell(ctx, func(t *tracker) { t.forget(session) })
	_, err = d.c.do(ctx, request{op: "delete secret", method: http.MethodDelete, resource: "secrets", name: m.Secret.Metadata.Name}, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// make makes the Secret and the Job, and has the one end with the other.
func (d *Driver) make(ctx context.Context, m manifests) error {
	if _, err := d.create(ctx, "secrets", m.Secret.Metadata, m.Secret); err != nil {
		return err
	}
	uid, err := d.create(ctx, "jobs", m.Job.Metadata, m.Job)
	if err != nil {
		return err
	}
	patch := map[string]any{"metadata": map[string]any{"ownerReferences": []owner{{APIVersion: "batch/v1", Kind: "Job", Name: m.Job.Metadata.Name, UID: uid, Controller: true}}}}
	_, err = d.c.do(ctx, request{op: "give secret to job", method: http.MethodPatch, resource: "secrets", name: m.Secret.Metadata.Name, body: patch, patch: true}, nil)
	return err
}

// create makes an object and returns its uid. An answer that was lost is not an
// object that was not made: what a second try finds is ours if it has our nonce,
// which a Secret has in its name, for we may not read Secrets.
func (d *Driver) create(ctx context.Context, resource string, m meta, object any) (uid string, err error) {
	var made struct {
		Metadata readMeta `json:"metadata"`
	}
	op := singular(resource)
	tries, err := d.c.do(ctx, request{op: "create " + op, method: http.MethodPost, resource: resource, query: strict(), body: object}, &made)
	if tries > 1 && errors.Is(err, ErrExists) {
		if resource == "secrets" {
			return "", nil
		}
		if _, getErr := d.c.do(ctx, request{op: "get " + op, method: http.MethodGet, resource: resource, name: m.Name}, &made); getErr != nil {
			return "", errors.Join(err, getErr)
		}
		if made.Metadata.Annotations[annotationNonce] != m.Annotations[annotationNonce] {
			return "", err
		}
		err = nil
	}
	if err == nil && made.Metadata.UID == "" {
		err = fmt.Errorf("create %s: the answer has no uid", op)
	}
	return made.Metadata.UID, err
}

// strict has the cluster refuse a field that it does not know. To leave one out
// would be a sandbox with a wall less.
func strict() url.Values { return url.Values{"fieldValidation": {"Strict"}} }

func singular(resource string) string { return strings.TrimSuffix(resource, "s") }

// redact keeps a token out of what a server repeats of a request.
func redact(err error, token string) error {
	var refused *APIError
	if errors.As(err, &refused) && strings.Contains(refused.Message, token) {
		refused.Message = strings.ReplaceAll(refused.Message, token, "…")
	}
	return err
}

// Delete ends the sandbox of a session, with all that belongs to it, and returns
// when the cluster has taken that: its pod then has its termination grace. One that
// is not there is no error. It is found by its label, so nothing else can be meant.
func (d *Driver) Delete(ctx context.Context, session string) error {
	return d.end(ctx, session, "jobs", "secrets")
}

// Kill is Delete of a sandbox whose worker has nothing to say: its pod gets a second.
func (d *Driver) Kill(ctx context.Context, session string) error {
	return d.end(ctx, session, "pods", "jobs", "secrets")
}

// end deletes what is of a session, of each kind in order.
func (d *Driver) end(ctx context.Context, session string, resources ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTime, ErrTimeout)
	defer cancel()
	selector := fmt.Sprintf("%s=%s,%s=%s", labelApp, appName, labelSession, labelValue(session))
	var errs []error
	for _, resource := range resources {
		options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
		if resource == "pods" {
			options["gracePeriodSeconds"] = 1 // none at all would not wait for the node
		}
		_, err := d.c.do(ctx, request{
			op: "delete " + singular(resource), method: http.MethodDelete, resource: resource,
			query: url.Values{"labelSelector": {selector}}, body: options,
		}, nil)
		if err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	d.tell(ctx, func(t *tracker) { t.forget(session) }) // whatever is left: nobody waits for it to begin
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete sandbox of %q: %w", session, err)
	}
	return nil
}

// Close ends the driver's goroutines and waits for them, as long as ctx allows. The
// sandboxes stay.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	if !d.closed {
		close(d.ended)
	}
	d.closed = true
	cancel := d.cancel
	d.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.running.Wait()
	}()
	select {
	case <-done:
		d.c.close()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close kubernetes driver: %w", context.Cause(ctx))
	}
}

// Health is how the watches are: what has been wrong for longest, and since when.
// Sandboxes begin and end without them; only what keeps one from beginning is then
// not heard.
func (d *Driver) Health() (since time.Time, err error) { return d.health.State() }

// Gaps says, a line each, what the sandboxes of a cluster do not keep by our doing.
func (d *Driver) Gaps() []string {
	return []string{
		"the network policy keeps only where the cluster's network enforces it, and on some from a moment after the pod's start on",
		"processes are bounded by what the nodes allow a pod, if anything",
		"the pod shares the node's kernel, unless its runtime class says otherwise",
	}
}

var _ worker.Sandboxes = (*Driver)(nil)
