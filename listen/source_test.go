package listen_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/listen"
)

// fakeSource owns the URIs of a scheme. Those in missing do not exist, those in
// static cannot be watched.
type fakeSource struct {
	scheme          string
	missing, static map[string]bool
	// onWatch, when set, runs in Watch before it answers.
	onWatch func(ctx context.Context) error

	mu      sync.Mutex
	changed map[string]func()
	starts  int
	stops   int
	lifeErr func() error // of the context of the last Watch
}

func newFakeSource(scheme string) *fakeSource {
	return &fakeSource{scheme: scheme, changed: make(map[string]func()), missing: map[string]bool{}, static: map[string]bool{}}
}

func (s *fakeSource) Owns(uri string) bool { return strings.HasPrefix(uri, s.scheme+"://") }

func (s *fakeSource) List(context.Context) (listen.Listing, error) {
	return listen.Listing{
		Resources: []listen.Resource{{URI: s.scheme + "://a", Name: s.scheme}},
		Templates: []listen.Template{{URITemplate: s.scheme + "://{x}"}},
	}, nil
}

func (s *fakeSource) Read(_ context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	if s.missing[uri] {
		return nil, &listen.NotFoundError{URI: uri, Hint: "did you mean: " + s.scheme + "://a"}
	}
	return []listen.Contents{{URI: uri, Text: s.scheme}}, nil
}

func (s *fakeSource) Watch(ctx context.Context, uri string, changed func()) (func(), error) {
	if s.onWatch != nil {
		if err := s.onWatch(ctx); err != nil {
			return nil, err
		}
	}
	if s.missing[uri] {
		return nil, &listen.NotFoundError{URI: uri, Hint: "did you mean: " + s.scheme + "://a"}
	}
	if s.static[uri] {
		return nil, listen.ErrNotWatchable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	s.changed[uri] = changed
	s.lifeErr = ctx.Err
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stops++
		delete(s.changed, uri)
	}, nil
}

// hastySource has news as soon as it is watched.
type hastySource struct{ *fakeSource }

func (s hastySource) Watch(ctx context.Context, uri string, changed func()) (func(), error) {
	stop, err := s.fakeSource.Watch(ctx, uri, changed)
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(time.Millisecond, changed)
	return func() { timer.Stop(); stop() }, nil
}

// slowSource takes a second to begin.
func slowSource() *fakeSource {
	s := newFakeSource("slow")
	s.onWatch = func(context.Context) error { time.Sleep(time.Second); return nil }
	return s
}

// change announces a change, if the URI is observed.
func (s *fakeSource) change(uri string) {
	s.mu.Lock()
	changed := s.changed[uri]
	s.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func (s *fakeSource) counts() (starts, stops int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts, s.stops
}
