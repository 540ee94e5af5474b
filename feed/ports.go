package feed

import (
	"context"
	"time"
)

// MaxPage bounds Query.Limit.
const MaxPage = 1000

// Store keeps the log. It is safe for concurrent use, also by several
// processes. feedtest.RunStore is its contract as tests.
type Store interface {
	// Append publishes clean drafts, all of them or none, and has them durable
	// when it returns. The ids of a batch rise in its order. Readers see ids in
	// order: once one has seen id N, no event becomes visible with an id ≤ N.
	// Error: *TopicsError, for those calls alone that ask for too many topics.
	Append(ctx context.Context, drafts []Draft) ([]Receipt, error)
	// Read returns a page of the log, all of one moment.
	Read(ctx context.Context, q Query) (Page, error)
	// Topics lists the topics that have or had events, by name, without those that
	// were forgotten.
	Topics(ctx context.Context) ([]Topic, error)
	// Trim removes the oldest events of a topic that keep does not allow, and the
	// idempotency keys that are older than its Age or, without one, whose events
	// were removed; a bounded number of each. It reports whether there is more to
	// remove. It never holds up an Append for longer than one such step. Ages are
	// by the clock of the store, which its processes on several machines share.
	Trim(ctx context.Context, topic string, keep Retention) (more bool, err error)
	// Forget removes topics that have neither events nor idempotency keys, and have
	// been seen to have none for so long, but not those to spare; a bounded number. It
	// returns when it is to be called again if nothing else happens: 0 is at once,
	// less than that never. Whoever resumes or counts from before such a topic went is
	// told that events are missing, also when it was made anew, and perhaps of topics
	// that never had any: what is kept of those that went is one number for all.
	Forget(ctx context.Context, spare []string, empty time.Duration) (next time.Duration, err error)
}

// Query selects a part of the log.
type Query struct {
	After  int64 // ids greater than that
	Filter Filter
	Limit  int // events to look at, MaxPage at most; zero means MaxPage
}

// Page is a part of the log, in order.
type Page struct {
	Events []Event
	// Through: every selected event that is kept, with an id after Query.After up
	// to Through, is in Events. At the end of the log it is Head.
	Through int64
	// Head is the position of the last event that was ever published.
	Head Position
	// Trimmed is the highest id that may have been removed from the selected topics.
	Trimmed int64
}

// Topic describes the events of a topic that are kept.
type Topic struct {
	Name    string    `json:"name"`
	Count   int64     `json:"count"`
	Bytes   int64     `json:"bytes"` // of their data, types and keys
	First   int64     `json:"first"` // id of the oldest, 0 if there is none
	Last    int64     `json:"last"`  // id of the newest ever
	Oldest  time.Time `json:"oldest,omitzero"`
	Trimmed int64     `json:"trimmed"` // highest id that was removed, or may have been before the topic was made
	// Age is that of the oldest, by the clock of the store.
	Age time.Duration `json:"-"`
}

// Retention bounds what is kept of a topic. Zero fields do not.
type Retention struct {
	Count int64
	Bytes int64
	Age   time.Duration
}

// Bus tells other processes that the log has grown. It may lose what it is told:
// whoever listens reads the log. feedtest.RunBus is its contract as tests.
type Bus interface {
	// Ring says that the log has grown to p.
	Ring(ctx context.Context, p Position) error
	// Listen calls ring when the log may have grown, once at the start as soon as
	// it hears, and again after every time that it may have been deaf. Calls may
	// coalesce. It returns nil when ctx ends, and an error when it cannot hear.
	Listen(ctx context.Context, ring func()) error
}

// Publisher appends to the log. *Hub is one.
type Publisher interface {
	// Publish has the drafts durable, in order, when it returns. Errors:
	// *InvalidError, *BatchError, *TopicsError; anything else may be tried again.
	Publish(ctx context.Context, drafts []Draft) ([]Receipt, error)
}

// Source turns changes of something into events. feedtest.RunSource is its
// contract as tests.
type Source interface {
	// Run publishes until ctx ends, when it returns nil. A failure to publish is
	// tried again, with the same idempotency key, before anything later.
	Run(ctx context.Context, to Publisher) error
}
