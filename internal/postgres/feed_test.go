package postgres

import (
	"testing"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestFeed(t *testing.T) {
	t.Parallel()
	feedtest.RunStore(t, func(t *testing.T) func() feed.Store {
		dsn := server.Get(t).Database(t)
		return func() feed.Store { return openAt(t, dsn, nil).Feed() }
	})
}

func TestBus(t *testing.T) {
	t.Parallel()
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		dsn := server.Get(t).Database(t)
		return openAt(t, dsn, nil).Bus(), openAt(t, dsn, nil).Bus()
	})
}
