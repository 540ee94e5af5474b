package feedserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// F-5: a topic that is one too many is refused, with what to do, by each way in.
func TestATopicTooMany(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	s.store.Fail(&feed.TopicsError{Topic: "a", Max: feed.MaxTopics})
	res, body := s.call(http.MethodPost, "/v1/topics/a/events", asJSON, `{"data":1}`)
	if res.StatusCode != http.StatusInsufficientStorage || !strings.Contains(body, "100000 topics") || !strings.Contains(body, "publish to one of them") {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, body := s.call(http.MethodPost, "/v1/topics/a/events", asLines, `{"data":1}`); res.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("%s %s", res.Status, body)
	}
}
