package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// F-3, F-14: the first rule that matches a topic says what happens to a slow
// subscriber and what is kept; what it leaves out is that of all topics.
func TestFeedRules(t *testing.T) {
	t.Parallel()
	path := write(t, `
feed:
  store: sqlite:/data/feed.db
  bus: nats://127.0.0.1:4222
  retention: {count: 500, age: -1ns}
  topics:
    - {topic: "audit.*", auditable: true, retention: {age: 8760h, count: -1}}
    - {topic: "audit*", policy: drop-newest}
`)
	c, err := Load(path, env(nil))
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]struct {
		policy feed.Policy
		keep   feed.Retention
	}{
		"audit.login": {feed.Disconnect, feed.Retention{Bytes: DefaultRetentionBytes, Age: 8760 * time.Hour}},
		"audits":      {feed.DropNewest, feed.Retention{Count: 500, Bytes: DefaultRetentionBytes}},
		"other":       {feed.DropOldest, feed.Retention{Count: 500, Bytes: DefaultRetentionBytes}},
	} {
		if p, k := c.Feed.Policy(topic), c.Feed.Keep(topic); p != want.policy || k != want.keep {
			t.Errorf("%s: %v, %+v; want %+v", topic, p, k, want)
		}
	}
}

func TestBadFeed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"store: mysql://u:hunter2@h/d":     "use sqlite:PATH",
		"store: u:hunter2@h/d":             "use sqlite:PATH",
		"store: 'host=h password=hunter2'": "use sqlite:PATH",
		"bus: u:hunter2@h:6379":            "redis:// or nats://",
		"bus: redis:hunter2@h":             "redis:// or nats://",
		"bus: postgres://u:hunter2@h/d":    "postgres (the store's own)",
		"store: 'sqlite:'":                 "use sqlite:PATH",
		"bus: kafka://u:hunter2@h":         "redis:// or nats://",
		"ring: -1":                         "feed.ring",
		"topics: [{topic: A}]":             "lower-case",
		"topics: [{policy: x}]":            "topic is empty",
		"topics: [{topic: a, policy: drop-oldest, auditable: true}]": "auditable topic must not",
		"topics: [{topic: a, policy: drop}]":                         "none of drop-oldest",
		"hooks: {a: {topic: b}}":                                     "secret_env is empty",
		"hooks: {a: {secret_env: S, topic: b, agent: c}}":            "not both",
		"hooks: {a: {secret_env: S, topic: B}}":                      "lower-case",
		"hooks: {a: {secret_env: S, agent: c, form: x}}":             "use standard or github",
	} {
		_, err := Load(write(t, "feed: {"+text+"}"), env(nil))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Topics that the configuration names are not forgotten; of a beginning there may be any
// number.
func TestNamedTopics(t *testing.T) {
	t.Parallel()
	path := write(t, `
feed:
  topics: [{topic: "a*", auditable: true}, {topic: b}, {topic: c}]
  hooks: {one: {secret_env: S, topic: c}, two: {secret_env: S, topic: d}, three: {secret_env: S, agent: e}}
`)
	c, err := Load(path, env(map[string]string{"S": "x"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Feed.Named(); !slices.Equal(got, []string{"b", "c", "d"}) {
		t.Errorf("%q", got)
	}
}
