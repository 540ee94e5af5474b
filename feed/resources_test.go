package feed_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/listen"
)

func resources(b *bench) *feed.Resources { return feed.NewResources(b.Hub, b.store, b.store, nil) }

func readResource(t *testing.T, r *feed.Resources, uri string, after *int64) listen.Contents {
	t.Helper()
	contents, err := r.Read(t.Context(), uri, listen.ReadOptions{After: after})
	if err != nil || len(contents) != 1 || contents[0].URI != uri {
		t.Fatalf("read %s: %+v, %v", uri, contents, err)
	}
	return contents[0]
}

// F-28, W-018: the seq of a topic has no holes, although its ids have, and a
// cursor gets what is newer.
func TestATopicIsAnEventLog(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(3, "a", "b")
		r := resources(b)
		type body struct {
			Log     string `json:"log"`
			LastSeq int64  `json:"last_seq"`
			Events  []struct {
				Seq    int64           `json:"seq"`
				Type   string          `json:"type"`
				ID     int64           `json:"id"`
				Time   string          `json:"time"`
				Object json.RawMessage `json:"object"`
			} `json:"events"`
		}
		read := func(after *int64) (got body) {
			c := readResource(t, r, "ossicle://feed/a", after)
			if err := json.Unmarshal([]byte(c.Text), &got); err != nil || c.MIMEType != listen.EventLogMIME {
				t.Fatalf("%+v: %v", c, err)
			}
			return got
		}
		got := read(nil)
		if got.Log != b.Stats().Head.Epoch || got.LastSeq != 3 || len(got.Events) != 3 {
			t.Fatalf("body %+v", got)
		}
		for i, e := range got.Events {
			if e.Seq != int64(i)+1 || e.ID != int64(2*i)+1 || e.Type != "up" || string(e.Object) != string(rune('0'+i)) || e.Time == "" {
				t.Errorf("event %d is %+v", i, e)
			}
		}
		two, far := int64(2), int64(99)
		if got := read(&two); len(got.Events) != 1 || got.Events[0].Seq != 3 {
			t.Errorf("after 2: %+v", got)
		}
		if got := read(&far); len(got.Events) != 3 {
			t.Errorf("after a position of another log: %+v", got)
		}
	})
}

// F-28: the state is the latest event of each key, as one object.
func TestAStateIsAnObjectByKey(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for _, d := range []feed.Draft{
			{Topic: "a", Type: "x", Key: `k"1`, Data: json.RawMessage(`1`)},
			{Topic: "a", Type: "y", Key: `k"1`, Data: json.RawMessage(`1915883588174806058`)},
			{Topic: "a", Type: "x", Data: json.RawMessage(`3`)},
		} {
			if _, err := b.Publish(t.Context(), []feed.Draft{d}); err != nil {
				t.Fatal(err)
			}
		}
		c := readResource(t, resources(b), "ossicle://feed/a/state", nil)
		want := `{"k\"1":{"type":"y","id":2,"key":"k\"1","time":"2000-01-01T00:00:00.000Z","object":1915883588174806058}}`
		if diff := cmp.Diff(want, c.Text); diff != "" || c.MIMEType != "application/json" {
			t.Errorf("%s (-want +got):\n%s", c.MIMEType, diff)
		}
		if c := readResource(t, resources(b), "ossicle://feed/none/state", nil); c.Text != "{}" {
			t.Errorf("a topic without keys is %s", c.Text)
		}
	})
}

// An event that is nested as deeply as it may be leaves the log and the state
// readable: what cannot be put into them is left out, and the others are there.
func TestADeepEventSpoilsNoResource(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for _, levels := range []int{jsonx.MaxDepth - 10, jsonx.MaxDepth - 9, 9_000} {
			data := json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
			if _, err := b.Publish(t.Context(), []feed.Draft{{Topic: "a", Type: "x", Key: strconv.Itoa(levels), Data: data}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, uri := range []string{"ossicle://feed/a", "ossicle://feed/a/state"} {
			text := readResource(t, resources(b), uri, nil).Text
			if !jsonx.Valid([]byte(text)) || strings.Count(text, `"omitted"`) != 2 || !strings.Contains(text, strings.Repeat("[", 190)) {
				t.Errorf("%s is %.300s", uri, text)
			}
		}
	})
}

// F-28: a transaction of 4,000 rows costs a watcher a few announcements, also one
// of a topic that has no events yet; one that has left hears nothing.
func TestManyEventsAreFewAnnouncements(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := resources(b)
		var heard, other atomic.Int64
		stop, err := r.Watch(t.Context(), "ossicle://feed/rows", func() { heard.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		stopOther, err := r.Watch(t.Context(), "ossicle://feed/other/state", func() { other.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		defer stopOther()
		for range 4 {
			drafts := make([]feed.Draft, 1000)
			for i := range drafts {
				drafts[i] = feed.Draft{Topic: "rows", Type: "up", Data: json.RawMessage(`1`)}
			}
			if _, err := b.store.Append(t.Context(), drafts); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Publish(t.Context(), []feed.Draft{{Topic: "rows", Type: "up", Data: json.RawMessage(`1`)}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := heard.Load(); n < 1 || n > 10 {
			t.Errorf("%d announcements of 4,001 events", n)
		}
		stop()
		n := heard.Load()
		b.publish(1, "rows")
		if heard.Load() != n || other.Load() != 0 {
			t.Errorf("heard %d more after the end, %d of another topic", heard.Load()-n, other.Load())
		}
		if s := b.Stats(); s.Subscribers != 1 {
			t.Errorf("%d subscriptions are left", s.Subscribers)
		}
	})
}

// W-011, W-012: every topic and the families are listed, each with a call that
// can be made as it stands.
func TestTopicsAreListed(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(1, "a", "b")
		r := feed.NewResources(b.Hub, b.store, b.store, &feed.ResourcesOptions{Listed: 1})
		l, err := r.List(t.Context())
		if err != nil || len(l.Resources) != 1 || l.Resources[0].URI != "ossicle://feed/b" || len(l.Templates) != 2 {
			t.Fatalf("%+v, %v", l, err)
		}
		for _, d := range []string{l.Resources[0].Description, l.Templates[0].Description, l.Templates[1].Description} {
			if !strings.Contains(d, `Example: await watch_start(name="`) || !strings.HasSuffix(d, `)`) {
				t.Errorf("description %q", d)
			}
		}
		b.store.Fail(errors.New("the disk is away"))
		if _, err := r.List(t.Context()); err == nil {
			t.Error("a store that fails lists topics")
		}
	})
}

// What is no topic is told so, with the form that is.
func TestOtherURIsAreNotFound(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := resources(b)
		for _, uri := range []string{"ossicle://feed/", "ossicle://feed/A", "ossicle://feed/a/b", "ossicle://feed/a/state/state", "ossicle://feed/..%2f", "x://y"} {
			var none *listen.NotFoundError
			if _, err := r.Read(t.Context(), uri, listen.ReadOptions{}); !errors.As(err, &none) {
				t.Errorf("read %s: %v", uri, err)
			}
			if _, err := r.Watch(t.Context(), uri, func() {}); !errors.As(err, &none) {
				t.Errorf("watch %s: %v", uri, err)
			}
		}
		if !r.Owns("ossicle://feed/a") || r.Owns("ossicle://session/x") {
			t.Error("owns the wrong URIs")
		}
	})
}

var _ feedtest.TopicStore = (*feedtest.Memory)(nil)
