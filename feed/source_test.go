package feed_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

func TestScripted(t *testing.T) {
	t.Parallel()
	feedtest.RunSource(t, func(*testing.T) (feed.Source, func(*testing.T)) {
		s, n := &feedtest.Scripted{}, 0
		return s, func(*testing.T) {
			n++
			s.Say(feed.Draft{Topic: "a", Data: json.RawMessage("1"), IdempotencyKey: fmt.Sprint(n)})
		}
	})
}
