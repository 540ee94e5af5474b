package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/shim"
)

// ShimOptions refine a shim. The zero value is the default.
type ShimOptions struct {
	// Name is the server's in the evidence; empty: the base name of the command, or
	// the host.
	Name string
	// Evidence gets what was seen, one JSON object a line. Nil: nobody.
	Evidence io.Writer
	// To is the URL of a session that takes what is seen, besides. Empty: none does.
	To string
	// Dir is the working directory of a command. Empty is ours.
	Dir string
	// Logger takes the log. Nil discards.
	Logger *slog.Logger

	session *sessionLine // that To stands for
}

// EnvShim is the environment variable by which a relay of a session learns where
// what it sees is taken: the address is a secret, and command lines are not.
const EnvShim = "OSSICLE_SHIM"

// ShimStdio relays a server that is a command on our own standard streams, until
// it exits. Errors: *shim.ExitError with its exit code, or why it did not start.
func ShimStdio(ctx context.Context, args []string, in io.Reader, out, errw io.Writer, o ShimOptions) error {
	if o.Name == "" {
		o.Name = evidence.CommandTarget(args[0])
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, EnvShim+"=") })
	secrets := append(args[1:len(args):len(args)], secretEnv(env)...)
	ob := o.observer(evidence.Stdio, evidence.CommandTarget(args[0]), secrets)
	defer o.close(ctx, ob)
	return shim.Stdio(ctx, shim.StdioOptions{Args: args, Env: env, Dir: o.Dir, In: in, Out: out, Err: errw, Observer: ob})
}

// ErrNotLoopback says that others could reach an address.
var ErrNotLoopback = errors.New("is not a loopback one")

// ShimHTTP relays the server of a URL on a loopback address until ctx ends. Ready
// is called with the URL that stands for the server's.
func ShimHTTP(ctx context.Context, target, addr string, ready func(url string) error, o ShimOptions) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("serve relay: address %.80q %w", addr, ErrNotLoopback)
	}
	where := evidence.NetworkTarget(target)
	if o.Name == "" {
		o.Name = where
	}
	ob := o.observer(evidence.HTTP, where, secretURL(target))
	defer o.close(ctx, ob)
	p, err := shim.NewProxy(target, ob, &shim.ProxyOptions{Logger: o.Logger})
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve relay: %w", err)
	}
	if err := ready("http://" + ln.Addr().String() + p.Path()); err != nil {
		return errors.Join(err, ln.Close())
	}
	return p.Serve(ctx, ln)
}

// observer writes down what is seen, as reports keep it.
func (o *ShimOptions) observer(transport evidence.Transport, target string, secrets []string) *observe.Observer {
	out := o.Evidence
	if o.To != "" {
		o.session = tellSession(o.To)
		if out = o.session; o.Evidence != nil {
			out = io.MultiWriter(o.Evidence, o.session)
		}
	}
	broken := false
	enc := json.NewEncoder(out)
	sink := func(e evidence.Evidence) {
		e, ok := e.Safe()
		if out == nil || broken || !ok {
			return
		}
		broken = enc.Encode(e) != nil
	}
	opts := &observe.Options{Server: o.Name, Sanitizer: evidence.NewSanitizer(secrets...), Logger: o.Logger, SlowAfter: stalledAfter}
	var ob *observe.Observer
	if o.session != nil { // who waits for a session to open wants to know
		opts.Slow = func() { ob.Report(evidence.Evidence{Kind: evidence.SessionBlocked}) }
	}
	ob = observe.New(sink, opts)
	// What stands behind the shim is configured for whoever talks to it.
	ob.Report(evidence.Evidence{Kind: evidence.ServerResolved, Detail: evidence.Detail{Transport: transport, Target: target}})
	return ob
}

func (o *ShimOptions) close(ctx context.Context, ob *observe.Observer) {
	ob.Close()
	if o.session != nil {
		o.session.finish()
	}
	if n := ob.Dropped(); n > 0 && o.Logger != nil {
		o.Logger.WarnContext(ctx, "evidence is not complete", logattr.Count(int(n)))
	}
}

var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|pwd|auth|credential|cookie`)

// secretEnv are the values of variables that sound like secrets.
func secretEnv(env []string) (values []string) {
	for _, e := range env {
		if name, value, _ := strings.Cut(e, "="); secretName.MatchString(name) {
			values = append(values, value)
		}
	}
	return values
}

// secretURL are the parts of a URL that reports do not keep.
func secretURL(raw string) (values []string) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	for _, vs := range u.Query() {
		values = append(values, vs...)
	}
	if password, ok := u.User.Password(); ok {
		values = append(values, password)
	}
	return values
}
