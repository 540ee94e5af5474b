package feedserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/logattr"
)

// recheckTime bounds the question whether one token still stands.
const recheckTime = 10 * time.Second

// grant is what lets some streams be open: a principal whose token may end. All
// streams of one token share one.
type grant struct {
	principal access.Principal
	streams   int // guarded by grants.mu
	lapsed    atomic.Bool
	done      chan struct{} // closed when lapsed
}

// over reports whether the streams of a grant are to end. Nil is for ever.
func (g *grant) over() bool { return g != nil && g.lapsed.Load() }

// ended is closed when the grant is over, and nil for one that has no end.
func (g *grant) ended() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.done
}

type grantKey struct {
	name    string
	hash    [32]byte
	expires int64
}

func keyOf(p *access.Principal) grantKey {
	k := grantKey{name: p.Name, hash: p.TokenHash}
	if !p.Expires.IsZero() {
		k.expires = p.Expires.UnixNano()
	}
	return k
}

// grants end streams when what let them in ends. Its goroutine runs while there
// is a grant.
type grants struct {
	recheck func(context.Context, *access.Principal) error // nil: no token is revoked
	every   time.Duration
	lapse   func() // some grants are over
	warn    func(error)

	mu      sync.Mutex
	open    map[grantKey]*grant
	running bool
	changed chan struct{} // holds a token when a grant came or went
	stop    context.CancelFunc
	ctx     func() context.Context
	wg      sync.WaitGroup
}

func newGrants(s *Server) *grants {
	ctx, cancel := context.WithCancel(context.Background())
	return &grants{
		recheck: s.o.Recheck, every: s.o.RecheckEvery, lapse: s.lapse,
		warn: func(err error) {
			s.log.Warn("tokens of open streams cannot be checked; the streams stay for now", logattr.Err(err))
		},
		open: map[grantKey]*grant{}, changed: make(chan struct{}, 1), stop: cancel, ctx: func() context.Context { return ctx },
	}
}

// enter counts a stream of p in. Nil means that nothing but the stream itself
// ends it.
func (gs *grants) enter(p *access.Principal) *grant {
	if p == nil || (p.Expires.IsZero() && (p.TokenHash == [32]byte{} || gs.recheck == nil)) {
		return nil
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.open[keyOf(p)]
	if g == nil {
		g = &grant{principal: *p, done: make(chan struct{})}
		g.principal.Rights = access.Rights{} // checked before
		gs.open[keyOf(p)] = g
		gs.change()
	}
	g.streams++
	if !gs.running {
		gs.running = true
		gs.wg.Go(gs.run)
	}
	return g
}

// leave counts a stream out.
func (gs *grants) leave(g *grant) {
	if g == nil {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g.streams--; g.streams == 0 && gs.open[keyOf(&g.principal)] == g {
		delete(gs.open, keyOf(&g.principal))
		gs.change()
	}
}

func (gs *grants) change() {
	select {
	case gs.changed <- struct{}{}:
	default:
	}
}

// close ends the goroutine.
func (gs *grants) close() {
	gs.stop()
	gs.wg.Wait()
}

func (gs *grants) run() {
	ctx := gs.ctx()
	next := time.Now().Add(gs.every)
	for {
		wake, ok := gs.round(ctx, &next)
		if !ok {
			return
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-timer.C:
		case <-gs.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round ends what is over, and returns when to look again; not ok where there is
// nothing left to look at.
func (gs *grants) round(ctx context.Context, next *time.Time) (time.Time, bool) {
	now := time.Now()
	var ask []*grant
	gs.mu.Lock()
	if ctx.Err() != nil || len(gs.open) == 0 {
		gs.running = false
		gs.mu.Unlock()
		return now, false
	}
	lapsed := false
	wake := *next
	for key, g := range gs.open {
		switch end := g.principal.Expires; {
		case !end.IsZero() && !now.Before(end):
			gs.end(key, g)
			lapsed = true
			continue
		case !end.IsZero() && end.Before(wake):
			wake = end
		}
		if gs.recheck != nil && g.principal.TokenHash != [32]byte{} {
			ask = append(ask, g)
		}
	}
	gs.mu.Unlock()
	if !now.Before(*next) {
		lapsed = gs.ask(ctx, ask) || lapsed
		*next = time.Now().Add(gs.every)
		wake = now // what expires next was not looked for beyond the old time
	}
	if lapsed {
		gs.lapse()
	}
	return wake, true
}

// ask ends the grants whose token does not stand any more.
func (gs *grants) ask(ctx context.Context, all []*grant) (lapsed bool) {
	for _, g := range all {
		ctx, cancel := context.WithTimeout(ctx, recheckTime)
		err := gs.recheck(ctx, &g.principal)
		cancel()
		switch {
		case errors.Is(err, access.ErrInvalidToken):
			gs.mu.Lock()
			gs.end(keyOf(&g.principal), g)
			gs.mu.Unlock()
			lapsed = true
		case err != nil:
			if ctx.Err() == nil {
				gs.warn(err)
			}
			return lapsed // the others would wait as long for the same answer
		}
	}
	return lapsed
}

// end marks a grant. gs.mu is held.
func (gs *grants) end(key grantKey, g *grant) {
	if gs.open[key] == g {
		delete(gs.open, key)
	}
	if !g.lapsed.Swap(true) {
		close(g.done)
	}
}
