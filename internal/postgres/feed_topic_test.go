package postgres

import (
	"testing"

	"github.com/ossicle/ossicle/feed/feedtest"
)

// F-28.
func TestFeedTopics(t *testing.T) {
	t.Parallel()
	feedtest.RunTopics(t, func(t *testing.T) feedtest.TopicStore {
		return openAt(t, server.Get(t).Database(t), nil).Feed()
	})
}
