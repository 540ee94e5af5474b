package listen

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func uris(u ...string) Filter { return Filter{ResourceSubscriptions: u} }

// granted is a stream that got what it asked for.
func granted(f Filter, onClose func()) (*Stream, *Feed) { return NewStream(f, f, nil, onClose) }

func drain(t *testing.T, s *Stream) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, _ := s.Next(ctx)
	return b.URIs
}

// M-13: sub-resources belong to the watches above them.
func TestStreamMatches(t *testing.T) {
	t.Parallel()
	s, feed := granted(uris("f:///a", "f:///a/b/", "f:///a/b/c", "memo://x", "q://r?k=1"), nil)
	for _, tt := range []struct {
		update string
		want   []string
	}{
		{"f:///a", []string{"f:///a"}},
		{"f:///a/b/c", []string{"f:///a/b/c", "f:///a", "f:///a/b/"}},
		{"f:///a/b/", []string{"f:///a/b/", "f:///a"}},
		{"f:///a?x=1", []string{"f:///a"}},
		{"f:///a#top", []string{"f:///a"}},
		{"f:///ab", nil},
		{"f:///", nil},
		{"memo://xy", nil},
		{"MEMO://x", nil},
		{"q://r?k=1", []string{"q://r?k=1"}},
		{"q://r?k=12", nil},
		{"", nil},
		{"memo://x/" + strings.Repeat("/", maxURI), nil},
	} {
		feed.Updated(tt.update)
		if diff := cmp.Diff(tt.want, drain(t, s)); diff != "" {
			t.Errorf("update of %.40q (-want +got):\n%s", tt.update, diff)
		}
		for _, w := range s.Filter().ResourceSubscriptions {
			if got, want := Covers(w, tt.update), slices.Contains(tt.want, w); len(tt.update) <= maxURI && got != want {
				t.Errorf("Covers(%q, %q) = %v", w, tt.update, got)
			}
		}
	}
}

// M-3, M-13: what is not fetched is a set.
func TestStreamCoalesces(t *testing.T) {
	t.Parallel()
	s, feed := granted(uris("a:/1", "a:/2"), nil)
	for i := range 10_000 {
		feed.Updated("a:/" + strconv.Itoa(2-i%2))
		feed.Updated("a:/1/" + strconv.Itoa(i))
	}
	b, err := s.Next(t.Context())
	if diff := cmp.Diff([]string{"a:/2", "a:/1"}, b.URIs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	feed.Updated("a:/1")
	if diff := cmp.Diff([]string{"a:/1"}, drain(t, s)); diff != "" {
		t.Errorf("after the fetch (-want +got):\n%s", diff)
	}
}

// What arrived twice counts from the second time.
func TestStreamArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, feed := granted(uris("a:/1"), nil)
		feed.Updated("a:/1")
		time.Sleep(time.Second)
		feed.Updated("a:/1")
		if _, arrived, err := s.next(t.Context()); err != nil || !arrived[0].Equal(time.Now()) {
			t.Errorf("arrived %v, now %v, %v", arrived, time.Now(), err)
		}
	})
}

// M-13: a wider acknowledgement is narrowed, a URI left out is out, and what
// overtook the acknowledgement counts as far as it is honoured.
func TestStreamNarrowsAck(t *testing.T) {
	t.Parallel()
	asked := uris("a:/1", "a:/2", "a:/2")
	asked.ToolsListChanged = true
	s := newStream(asked, nil)
	s.updated("a:/2")
	s.updated("a:/1")
	s.updated("a:/3")
	s.acknowledge(Filter{ResourceSubscriptions: []string{"a:/3", "a:/2"}, ToolsListChanged: true, PromptsListChanged: true}, nil)
	want := uris("a:/2")
	want.ToolsListChanged = true
	if diff := cmp.Diff(want, s.Filter()); diff != "" {
		t.Errorf("honoured (-want +got):\n%s", diff)
	}
	s.updated("a:/1")
	s.updated("a:/2")
	s.listChanged(notificationPromptsListChanged)
	s.listChanged(notificationToolsListChanged)
	b, _ := s.Next(t.Context())
	if diff := cmp.Diff(Batch{URIs: []string{"a:/2"}, ToolsListChanged: true}, b); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	s.acknowledge(asked, nil) // a second acknowledgement changes nothing
	if diff := cmp.Diff(want, s.Filter()); diff != "" {
		t.Errorf("after a second acknowledgement (-want +got):\n%s", diff)
	}
}

// B-013: the news before the end are told, then the end, again and again.
func TestStreamEnd(t *testing.T) {
	t.Parallel()
	s, feed := granted(uris("a:/1"), func() { t.Error("the peer was told of the end that it made") })
	feed.Updated("a:/1")
	feed.End(EndGraceful, nil)
	feed.End(EndCancelled, nil) // B-020: the second of two ends is none
	feed.Updated("a:/1")
	if b, err := s.Next(t.Context()); err != nil || len(b.URIs) != 1 {
		t.Errorf("first Next = %v, %v", b, err)
	}
	for range 2 {
		_, err := s.Next(t.Context())
		var end *EndError
		if !errors.As(err, &end) || end.Reason != EndGraceful || !end.Polite() {
			t.Errorf("error %v, want a graceful end", err)
		}
	}
	s.Close()
}

func TestStreamClose(t *testing.T) {
	t.Parallel()
	closes := 0
	s, feed := granted(uris("a:/1"), func() { closes++ })
	feed.Updated("a:/1")
	s.Close()
	s.Close()
	feed.Updated("a:/1")
	b, err := s.Next(t.Context())
	var end *EndError
	if !errors.As(err, &end) || end.Reason != EndLocal || !b.empty() || closes != 1 {
		t.Errorf("Next = %v, %v; %d closes", b, err, closes)
	}
}
