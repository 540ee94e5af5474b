package memo

import (
	"context"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/listen"
)

// URI is the one resource of a store.
const URI = "memo://notes"

const scheme = "memo:"

var _ listen.Source = (*Store)(nil)

// Owns implements [listen.Source]: every memo: URI is ours, so that a typo is
// answered with the right one.
func (s *Store) Owns(uri string) bool { return strings.HasPrefix(uri, scheme) }

// List implements [listen.Source].
func (s *Store) List(context.Context) (listen.Listing, error) {
	return listen.Listing{Resources: []listen.Resource{{
		URI:      URI,
		Name:     "notes",
		Title:    "Notes",
		MIMEType: "application/json",
		Description: "All notes as one JSON object; memo_set and memo_delete change it, and every change is announced. " +
			`Example: await watch_start(name="notes", uri="` + URI + `")`,
	}}}, nil
}

// Read implements [listen.Source].
func (s *Store) Read(_ context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	if uri != URI {
		return nil, notFound(uri)
	}
	return []listen.Contents{{URI: URI, MIMEType: "application/json", Text: string(s.JSON())}}, nil
}

// Watch implements [listen.Source].
func (s *Store) Watch(_ context.Context, uri string, changed func()) (stop func(), err error) {
	if uri != URI {
		return nil, notFound(uri)
	}
	return s.observers.add(changed), nil
}

func notFound(uri string) error {
	return &listen.NotFoundError{URI: uri, Hint: "the only one is " + URI}
}

// observers is the set of functions to call after a change. A function is
// never called after its removal has returned.
type observers struct {
	mu  sync.Mutex
	set map[*observer]struct{}
}

type observer struct{ changed func() }

func (o *observers) add(changed func()) (remove func()) {
	ob := &observer{changed}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil {
		o.set = make(map[*observer]struct{})
	}
	o.set[ob] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.set, ob)
	}
}

func (o *observers) notify() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ob := range o.set {
		ob.changed()
	}
}
