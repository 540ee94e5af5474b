package sqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/feed"
)

const (
	// commitTime bounds one shared commit. It belongs to several callers, so none
	// of their contexts ends it.
	commitTime = 30 * time.Second
	// sharedDrafts bounds the events of a shared commit.
	sharedDrafts = 2 * feed.MaxBatch
)

// appendGroup has the calls that wait for the disk share a commit: a commit costs
// a sync of the disk, however many events it has. There is no queue beyond the
// callers themselves, each of whom waits for its own.
type appendGroup struct {
	turn chan struct{} // holds a token while somebody commits

	mu      sync.Mutex
	waiting []*appending
}

// appending is one call.
type appending struct {
	drafts   []feed.Draft
	receipts []feed.Receipt
	err      error
	done     chan struct{}
}

func newAppendGroup() *appendGroup { return &appendGroup{turn: make(chan struct{}, 1)} }

// add appends the drafts with whatever waits beside them. Whoever gets the turn
// commits for all.
func (g *appendGroup) add(ctx context.Context, drafts []feed.Draft, commit func(context.Context, []*appending) error) ([]feed.Receipt, error) {
	one := &appending{drafts: drafts, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, one)
	g.mu.Unlock()
	select {
	case g.turn <- struct{}{}:
		for !one.over() {
			g.commitNext(ctx, commit)
		}
		<-g.turn
	case <-one.done:
	case <-ctx.Done():
		if g.leave(one) {
			return nil, ctx.Err()
		}
		<-one.done // it is in a commit, whose outcome is all that can be told
	}
	return one.receipts, one.err
}

func (a *appending) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// leave takes a call out that nobody has begun to commit.
func (g *appendGroup) leave(one *appending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, one)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// next takes the calls of the next commit, at least one.
func (g *appendGroup) next() (calls []*appending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for drafts := 0; len(g.waiting) > 0 && (len(calls) == 0 || drafts+len(g.waiting[0].drafts) <= sharedDrafts); {
		calls, drafts = append(calls, g.waiting[0]), drafts+len(g.waiting[0].drafts)
		g.waiting = slices.Delete(g.waiting, 0, 1)
	}
	return calls
}

// commitNext has a commit set the receipts of its calls, or the errors of those that it
// refuses; its own error is that of all.
func (g *appendGroup) commitNext(ctx context.Context, commit func(context.Context, []*appending) error) {
	calls := g.next()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTime)
	defer cancel()
	err := commit(ctx, calls)
	for _, one := range calls {
		if err != nil {
			one.receipts, one.err = nil, err
		}
		close(one.done)
	}
}
