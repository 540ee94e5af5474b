package postgres

import (
	"testing"

	"github.com/ossicle/ossicle/feed/feedtest"
)

// F-28.
func TestFeedTopics(t *testing.T) {
	t.Parallel()
	again := reused(t)
	feedtest.RunTopics(t, func(t *testing.T) feedtest.TopicStore {
		return openAt(t, again(t), nil).Feed()
	})
}
