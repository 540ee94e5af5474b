package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/feed"
)

const (
	// forgetStep bounds the topics that one transaction removes.
	forgetStep = 500
	// admitTries bounds how often it is asked which calls of a group make too many
	// topics: others may make some meanwhile.
	admitTries = 3
)

// Forget implements feed.Store. Topics of captured tables are spared, too.
func (f *Feed) Forget(ctx context.Context, spare []string, empty time.Duration) (next time.Duration, err error) {
	if spare == nil {
		spare = []string{}
	}
	var left int64
	err = f.db.call(ctx, `SELECT ossicle.feed_forget($1, $2, $3)`, []any{spare, empty.Microseconds(), forgetStep},
		func(rows pgx.Rows) error { return rows.Scan(&left) })
	if err != nil {
		return 0, fmt.Errorf("forget topics: %w", err)
	}
	if left < 0 {
		return -1, nil
	}
	return time.Duration(left) * time.Microsecond, nil
}

// errTopics says that topics came and went while it was asked which there are.
var errTopics = errors.New("there are as many topics as there may be, and others come and go; try again")

// appendWithin appends the calls of a group, but not those that make too many topics:
// each has its outcome when it returns. A group that does is refused as a whole, and
// goes again without the calls that are to blame.
func (f *Feed) appendWithin(ctx context.Context, group []*appending) {
	var err error
	for try := range admitTries + 1 {
		var full bool
		if full, err = f.appendGroup(ctx, group); err != nil || !full {
			break
		}
		if err = errTopics; try < admitTries {
			if group, err = f.admit(ctx, group, try == admitTries-1); err != nil || len(group) == 0 {
				break
			}
		}
	}
	for _, a := range group {
		a.err = err
	}
}

// admit returns the calls of a group for whose topics there is room, or, for the last
// time, which make none at all. The others have their errors.
func (f *Feed) admit(ctx context.Context, group []*appending, last bool) (admitted []*appending, err error) {
	var names, fresh []string
	for _, a := range group {
		for _, d := range a.drafts {
			names = append(names, d.Topic)
		}
	}
	var topics int64
	err = f.db.pool.QueryRow(ctx, `SELECT l.topics, ARRAY(SELECT DISTINCT u.name FROM unnest($1::text[]) AS u (name)
			WHERE NOT EXISTS (SELECT FROM ossicle.feed_topic t WHERE t.name = u.name)) FROM ossicle.feed_log l`, names).Scan(&topics, &fresh)
	if err != nil {
		return group, fmt.Errorf("ask for topics: %w", err)
	}
	room := f.topics - topics
	if last {
		room = 0
	}
	unknown := map[string]bool{}
	for _, name := range fresh {
		unknown[name] = true
	}
	for _, a := range group {
		made := map[string]bool{}
		for _, d := range a.drafts {
			if !unknown[d.Topic] || made[d.Topic] {
				continue
			}
			if made[d.Topic] = true; int64(len(made)) > room {
				a.err = &feed.TopicsError{Topic: d.Topic, Max: f.topics}
				break
			}
		}
		if a.err != nil {
			continue
		}
		for name := range made {
			delete(unknown, name)
		}
		room -= int64(len(made))
		admitted = append(admitted, a)
	}
	return admitted, nil
}
