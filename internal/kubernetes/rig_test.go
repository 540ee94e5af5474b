package kubernetes

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/worker/workertest"
)

// rig is a driver and a cluster that it speaks to over a network in memory, in
// virtual time.
type rig struct {
	api    *fakeAPI
	net    *workertest.Net
	driver *Driver
	server *http.Server
	served chan struct{}

	mu    sync.Mutex
	exits map[string][]Exit
	notes map[string][]Note
}

// bubble runs a test in virtual time, with a rig.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.close(t)
		test(t, r)
	})
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := &rig{api: newFakeAPI(t), net: workertest.NewNet(), served: make(chan struct{}), exits: map[string][]Exit{}, notes: map[string][]Note{}}
	r.server = &http.Server{Handler: r.api}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(r.net)
	}()
	o := &Options{
		Transport: r.net.Transport(),
		Exited: func(session string, e Exit) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.exits[session] = append(r.exits[session], e)
		},
		Noted: func(session string, n Note) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notes[session] = append(r.notes[session], n)
		},
	}
	if change != nil {
		change(o)
	}
	d, err := New(inCluster(), o)
	if err != nil {
		t.Fatal(err)
	}
	d.c.load = func() (*access, error) {
		return &access{base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, namespace: "sandboxes"}, nil
	}
	r.driver = d
	return r
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := r.driver.Close(ctx); err != nil {
		t.Error(err)
	}
	_ = r.server.Close()
	_ = r.net.Close()
	<-r.served
	r.net.Reset()
}

// create makes a sandbox and waits until the watches have seen it.
func (r *rig) create(t *testing.T, session string) {
	t.Helper()
	if err := r.driver.Create(t.Context(), spec(session)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) exited(session string) []Exit {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exits[session]
}

func (r *rig) noted(session string) []Note {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[session]
}
