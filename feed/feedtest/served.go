package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/supervise"
)

// patience bounds every wait for a server.
const patience = 20 * time.Second

// keepalive is how often the buses of tests ask, and how long a server has to
// answer, which on a busy machine it needs.
const keepalive = time.Second

// ServedBus is a bus over a server that may go away.
type ServedBus interface {
	feed.Bus
	Health() feed.Health
	Close() error
}

// BusServer is a server of a bus that a test can do harm to; *testserver.Server
// with its address is one.
type BusServer interface {
	Address() string
	Start(tb testing.TB)
	Kill(tb testing.TB)
	Hang(tb testing.TB)
	Resume(tb testing.TB)
}

// BusOptions are what the suite changes of a bus. Zero is its default.
type BusOptions struct {
	Timeout   time.Duration // of a ring
	Keepalive time.Duration
	Pause     time.Duration // the longest between two tries to connect
}

// ServeBus starts a server and returns what opens a bus of it, which is closed with
// the test.
type ServeBus func(t *testing.T) (BusServer, func(t *testing.T, o BusOptions) ServedBus)

// RunServedBus is the conformance suite of buses over servers, beside RunBus: what
// becomes of them, and of hubs behind them, when the server dies, hangs, and comes
// back.
func RunServedBus(t *testing.T, serve ServeBus) {
	for name, run := range map[string]func(*testing.T, ServeBus){
		"ServerDies": serverDies, "HubsBehindABrokenBus": hubsBehindABrokenBus, "ServerHangs": serverHangs,
		"CloseWhileServerHangs": closeWhileServerHangs, "ListenerAsks": listenerAsks,
	} {
		t.Run(name, func(t *testing.T) { run(t, serve) })
	}
}

// Hear returns where the rings of a bus arrive. It waits for the first.
func Hear(t *testing.T, b ServedBus) <-chan struct{} {
	t.Helper()
	rings := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Listen(ctx, func() { rings <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-rings:
	case <-time.After(patience):
		t.Fatalf("no greeting: health %+v", b.Health())
	}
	return rings
}

// Await waits for a ring.
func Await(t *testing.T, rings <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-rings:
	case <-time.After(patience):
		t.Fatalf("no ring: %s", what)
	}
}

// Sick waits until a bus says that something is wrong, or that nothing is. A
// connection breaks without telling the test, so it looks again and again.
func Sick(t *testing.T, b ServedBus, want bool) feed.Health {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		h := b.Health()
		if (h.Err != "") == want && h.Since.IsZero() != want {
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("health %+v, want an error: %v", h, want)
		}
	}
}

// Ring rings for an id. On a busy machine a server may take longer than a bus
// waits for it: then it is told once more.
func Ring(t *testing.T, b ServedBus, id int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: id})
		if err == nil {
			return
		}
		if !errors.Is(err, supervise.ErrSlow) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// F-26, F-27: a server that dies and comes back costs nobody anything but time.
func serverDies(t *testing.T, serve ServeBus) {
	t.Parallel()
	s, open := serve(t)
	o := BusOptions{Pause: 200 * time.Millisecond}
	speaker, listener := open(t, o), open(t, o)
	rings := Hear(t, listener)
	for i := range 3 {
		Ring(t, speaker, int64(i))
		Await(t, rings, "it works")
		s.Kill(t)
		if h := Sick(t, listener, true); !strings.Contains(h.Err, s.Address()) {
			t.Errorf("health %+v", h)
		}
		for range 3 {
			begun := time.Now()
			if err := speaker.Ring(t.Context(), feed.Position{Epoch: "e", ID: 9}); err == nil || time.Since(begun) > patience/2 {
				t.Errorf("rang a dead server: %v after %v", err, time.Since(begun))
			}
		}
		Sick(t, speaker, true)
		s.Start(t)
		Await(t, rings, "it may have been deaf")
		Sick(t, listener, false)
		Sick(t, speaker, false) // has delivered what it owed
		for len(rings) > 0 {
			<-rings
		}
	}
}

// F-26: what is published while the bus is down reaches the other replica when
// it is back.
func hubsBehindABrokenBus(t *testing.T, serve ServeBus) {
	t.Parallel()
	s, open := serve(t)
	store := NewMemory()
	o := BusOptions{Pause: 200 * time.Millisecond}
	hubs := make([]*feed.Hub, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(hubs))
	for i := range hubs {
		hub, err := feed.NewHub(ctx, store, open(t, o), nil)
		if err != nil {
			t.Fatal(err)
		}
		hubs[i] = hub
		go func() { done <- hub.Run(ctx) }()
	}
	defer func() {
		cancel()
		for range hubs {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()
	sub, err := hubs[1].Subscribe(feed.Subscribe{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	next := func(want int64) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		b, err := sub.Next(waiting)
		if err != nil || len(b.Items) != 1 || b.Items[0].ID != want {
			t.Fatalf("batch %+v, %v, want event %d", b, err, want)
		}
	}
	publish := func() {
		t.Helper()
		if _, err := hubs[0].Publish(ctx, []feed.Draft{{Topic: "a", Data: json.RawMessage("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	next(1)
	s.Kill(t)
	publish()
	s.Start(t)
	next(2)
	publish()
	next(3)
}

// A server that hangs is found out, and holds no publisher up for long.
func serverHangs(t *testing.T, serve ServeBus) {
	t.Parallel()
	s, open := serve(t)
	o := BusOptions{Timeout: 100 * time.Millisecond, Keepalive: keepalive, Pause: 200 * time.Millisecond}
	b := open(t, o)
	rings := Hear(t, b)
	Ring(t, b, 1)
	Await(t, rings, "it works")
	s.Hang(t)
	begun := time.Now()
	if err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: 2}); err == nil || time.Since(begun) > patience/2 {
		t.Errorf("rang a server that hangs: %v after %v", err, time.Since(begun))
	}
	Sick(t, b, true)
	s.Resume(t)
	Await(t, rings, "it hears again")
	Sick(t, b, false)
}

// A server that hangs does not hold up the end.
func closeWhileServerHangs(t *testing.T, serve ServeBus) {
	t.Parallel()
	s, open := serve(t)
	fresh, connected := open(t, BusOptions{}), open(t, BusOptions{})
	Ring(t, connected, 1)
	s.Hang(t)
	const try = 5 * time.Second // goes on when nobody waits for it any more
	for _, b := range []ServedBus{fresh, connected} {
		begun := time.Now()
		if err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: 2}); !errors.Is(err, supervise.ErrSlow) {
			t.Errorf("error %v", err)
		}
		_ = b.Close()
		if d := time.Since(begun); d >= try {
			t.Errorf("the end waited for the try: %v after its beginning", d)
		}
	}
}

// A server that hangs is found out also by those who only listen.
func listenerAsks(t *testing.T, serve ServeBus) {
	t.Parallel()
	s, open := serve(t)
	b := open(t, BusOptions{Keepalive: keepalive})
	rings := Hear(t, b)
	// A real server, in real time. On a busy machine one that answers may be late
	// now and then, and is not always.
	for tries := 1; ; tries++ {
		Sick(t, b, false)
		for len(rings) > 0 {
			<-rings
		}
		time.Sleep(2*keepalive + keepalive/2)
		h := b.Health()
		if h.Err == "" && len(rings) == 0 {
			break
		}
		if tries == 8 {
			t.Fatalf("health %+v, %d rings of a server that answers", h, len(rings))
		}
	}
	s.Hang(t)
	Sick(t, b, true)
}
