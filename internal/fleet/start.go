package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ossicle/ossicle/worker"
)

// ErrTooMany is for a process that has as many as it may.
var ErrTooMany = errors.New("there are as many sandboxes as there may be")

// ErrClosed is for a fleet that ends.
var ErrClosed = errors.New("start sandbox: the gateway is shutting down")

// ExistsError says that a sandbox of that id exists or existed.
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("start sandbox: the id %q is taken", e.ID)
}

// ProfileError says that there is no kind of sandbox of a name.
type ProfileError struct {
	Profile string
	Known   []string
}

func (e *ProfileError) Error() string {
	return fmt.Sprintf("start sandbox: there is no profile %.80q; there are %s", e.Profile, strings.Join(e.Known, ", "))
}

// validID is what an id may be: it becomes a label, a word on the command line
// and a segment of a path.
var validID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// InvalidError says what is wrong with a request.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// Start makes a sandbox of a profile. An empty id is a new one. The sandbox is
// being made when it returns; Session.Running waits for it. note names whose it is.
// Errors: InvalidError, ProfileError, ExistsError, ErrTooMany, ErrClosed,
// ErrNoSandbox, and those of the driver.
func (f *Fleet) Start(ctx context.Context, id, profile, note string) (*worker.Session, error) {
	if id == "" {
		id = "ses_" + strings.ToLower(rand.Text())
	}
	if !validID.MatchString(id) {
		return nil, &InvalidError{fmt.Sprintf("start sandbox: the id %.80q: use up to 63 letters, digits, dots, dashes and underscores", id)}
	}
	p, known := f.config.Sandbox(profile)
	if !known {
		return nil, &ProfileError{profile, f.config.SandboxNames()}
	}
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave()
	defer f.changed.Ring("")
	d, err := f.driver(ctx, &p)
	if err != nil {
		return nil, err
	}
	sb, err := f.gateway.Open(ctx, f.tokens.Tokens(), id, d.Traits().Control, p.Profile)
	switch {
	case errors.Is(err, worker.ErrConflict):
		return nil, &ExistsError{id}
	case err != nil:
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	if note != "" {
		f.mu.Lock()
		f.notes[id] = note
		f.mu.Unlock()
	}
	if err := d.Create(ctx, Spec{Session: id, Env: sb.Env, Token: sb.Token}); err != nil {
		sb.Session.Exited(fmt.Sprintf("it could not be made: %.300s", err))
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return sb.Session, nil
}

// enter takes a place among the sandboxes.
func (f *Fleet) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := cmp.Or(f.config.Gateway.Sandboxes, DefaultSandboxes)
	switch {
	case f.closed:
		return ErrClosed
	case len(f.host.Sessions())+f.begun >= most:
		return fmt.Errorf("start sandbox: %w: %d", ErrTooMany, most)
	}
	f.begun++
	return nil
}

func (f *Fleet) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun--
}

// Kill ends a sandbox at once; nothing is flushed. It waits until the session is
// over.
func (f *Fleet) Kill(ctx context.Context, s *worker.Session, why string) error {
	s.Kill(why)
	select {
	case <-s.Left():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill sandbox %q: %w", s.ID(), context.Cause(ctx))
	}
}
