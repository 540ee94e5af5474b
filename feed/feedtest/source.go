package feedtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
)

// Scripted is a source of what Say is told. The zero Scripted is ready.
type Scripted struct {
	once  sync.Once
	queue chan feed.Draft
}

// scriptedQueue bounds what was said and not yet published; Say waits when it is
// full.
const scriptedQueue = 16

func (s *Scripted) drafts() chan feed.Draft {
	s.once.Do(func() { s.queue = make(chan feed.Draft, scriptedQueue) })
	return s.queue
}

// Say has the source publish a draft.
func (s *Scripted) Say(d feed.Draft) { s.drafts() <- d }

// Run implements feed.Source.
func (s *Scripted) Run(ctx context.Context, to feed.Publisher) error {
	for {
		select {
		case d := <-s.drafts():
			for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
				if _, err := to.Publish(ctx, []feed.Draft{d}); err == nil {
					break
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return nil
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// RunSource is the conformance suite of feed.Source. open returns a source and
// what makes it see its next change, which must become one event.
func RunSource(t *testing.T, open func(t *testing.T) (source feed.Source, change func(t *testing.T))) {
	t.Run("NothingIsLostToAFailure", func(t *testing.T) {
		source, change := open(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		to := &refusing{published: make(chan feed.Draft, 100)}
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx, to) }()
		for range 5 {
			change(t)
			select {
			case d := <-to.published:
				if len(to.refused) < 3 {
					t.Errorf("published after %d refusals", len(to.refused))
				}
				for _, r := range to.refused {
					if diff := cmp.Diff(d, r); diff != "" {
						t.Errorf("the repetition differs (-published +refused):\n%s", diff)
					}
				}
				if d.IdempotencyKey == "" {
					t.Error("without an idempotency key a repetition is another event")
				}
				if _, err := feed.Clean([]feed.Draft{d}); err != nil {
					t.Error(err)
				}
			case <-ctx.Done():
				t.Fatal("not published")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
	t.Run("AnEndIsNoError", func(t *testing.T) {
		source, _ := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := source.Run(ctx, &refusing{}); err != nil {
			t.Error(err)
		}
	})
}

// refusing is a publisher that takes a draft only when it is offered for the
// fourth time, as it was.
type refusing struct {
	refused   []feed.Draft // of the draft that was published last, when there is one to read
	tries     []feed.Draft
	published chan feed.Draft
}

func (r *refusing) Publish(_ context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	if len(drafts) != 1 {
		return nil, errors.New("one at a time, please")
	}
	if len(r.tries) < 3 {
		r.tries = append(r.tries, drafts[0])
		return nil, errors.New("not now")
	}
	r.refused, r.tries = r.tries, nil
	r.published <- drafts[0]
	return []feed.Receipt{{ID: 1}}, nil
}
