package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/atomicfile"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// ear is a feed and an agent with listeners, in virtual time.
type ear struct {
	*listeners

	t     *testing.T
	hub   *feed.Hub
	inbox *notice.Inbox
	path  string
	stop  func()
}

// hear runs f in a bubble with a feed and the inbox of an agent.
func hear(t *testing.T, specs []TopicSpec, f func(t *testing.T, e *ear)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "listeners", "me.json")
	synctest.Test(t, func(t *testing.T) {
		hub, err := feed.NewHub(t.Context(), feedtest.NewMemory(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		inbox := notice.New(noticetest.NewStore(), nil)
		if err := inbox.Register(t.Context(), "me"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- hub.Run(ctx) }()
		e := &ear{t: t, hub: hub, inbox: inbox, path: path}
		e.start(specs)
		f(t, e)
		e.stop()
		cancel()
		<-ran
	})
}

// start begins a life of the listeners.
func (e *ear) start(specs []TopicSpec) {
	e.t.Helper()
	ls, err := newListeners(e.hub, e.inbox, "me", e.path, specs, slog.New(slog.DiscardHandler))
	if err != nil {
		e.t.Fatal(err)
	}
	e.listeners = ls
	ctx, cancel := context.WithCancel(e.t.Context())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		ls.run(ctx)
	}()
	e.stop = func() {
		cancel()
		<-ran
	}
	synctest.Wait()
}

func (e *ear) publish(topic string, n int) {
	e.t.Helper()
	for i := range n {
		d := feed.Draft{Topic: topic, Type: "up", Data: json.RawMessage(fmt.Sprint(i))}
		if _, err := e.hub.Publish(e.t.Context(), []feed.Draft{d}); err != nil {
			e.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// heads are the first lines of the notices in the inbox, oldest first.
func (e *ear) heads() []string {
	e.t.Helper()
	page, err := e.inbox.List(e.t.Context(), notice.Query{Agent: "me"})
	if err != nil {
		e.t.Fatal(err)
	}
	var heads []string
	for _, r := range page.Records {
		head, _, _ := strings.Cut(r.Text, "\n")
		heads = append(heads, head)
	}
	return heads
}

func (e *ear) expect(want ...string) {
	e.t.Helper()
	if got := e.heads(); fmt.Sprint(got) != fmt.Sprint(want) {
		e.t.Errorf("notices %q, want %q", got, want)
	}
}

// F-30: wake tells of the first events at once, of a burst in one notice, and of
// what comes while it rests in one more.
func TestListenWake(t *testing.T) {
	t.Parallel()
	hear(t, []TopicSpec{{"build*", ListenWake}}, func(_ *testing.T, e *ear) {
		e.publish("other", 3)
		e.publish("build", 40)
		time.Sleep(gatherTime)
		synctest.Wait()
		e.expect("Since your last message: 40 x up.")
		e.publish("builds", 1)
		time.Sleep(wakeRest - time.Millisecond)
		e.publish("build", 6)
		e.expect("Since your last message: 40 x up.")
		time.Sleep(gatherTime + time.Millisecond)
		synctest.Wait()
		e.expect("Since your last message: 40 x up.", "Since your last message: 7 x up.")
	})
}

// F-30: what comes between two lives is told in the second, and what the first
// has told is not, also if it died between telling and keeping its place.
func TestListenGoesOn(t *testing.T) {
	t.Parallel()
	specs := []TopicSpec{{"a", ListenWake}}
	hear(t, specs, func(t *testing.T, e *ear) {
		e.publish("a", 1)
		time.Sleep(gatherTime)
		synctest.Wait()
		before, _ := openPositions(e.path)
		e.stop()
		e.publish("a", 2)
		e.start(specs)
		time.Sleep(gatherTime)
		synctest.Wait()
		e.expect("Since your last message: 1 x up.", "Since your last message: 2 x up.")
		e.stop()
		// The second notice is in the inbox, its place was not kept, and there is more.
		if err := atomicfile.WriteJSON(e.path, before.at); err != nil {
			t.Fatal(err)
		}
		e.publish("a", 5)
		e.start(specs)
		time.Sleep(wakeRest)
		synctest.Wait()
		e.expect("Since your last message: 1 x up.", "Since your last message: 2 x up.", "Since your last message: 5 x up.")
	})
}

// F-29, F-30: digest waits for a turn that a person begins, comes in one block,
// and comes again if that turn does not complete.
func TestListenDigest(t *testing.T) {
	t.Parallel()
	hear(t, []TopicSpec{{"a", ListenDigest}}, func(t *testing.T, e *ear) {
		e.publish("a", 3)
		time.Sleep(time.Hour)
		e.expect()
		got := e.pull()
		if len(got) != 1 || !strings.HasPrefix(got[0].Notice.Text, "Since your last message: 3 x up.") || got[0].Notice.Source != "feed" {
			t.Fatalf("pulled %+v", got)
		}
		if again := e.pull(); len(again) != 0 {
			t.Errorf("pulled twice: %+v", again)
		}
		e.publish("a", 1)
		got[0].Ack(agent.Ack{State: agent.AckUndelivered, Err: errors.New("the agent died")})
		synctest.Wait()
		got = e.pull()
		if len(got) != 1 || !strings.HasPrefix(got[0].Notice.Text, "Since your last message: 4 x up.") {
			t.Fatalf("after a turn that broke: %+v", got)
		}
		got[0].Ack(agent.Ack{State: agent.AckSeen})
		e.stop()
		e.start([]TopicSpec{{"a", ListenDigest}})
		if again := e.pull(); len(again) != 0 {
			t.Errorf("told again in the next life: %+v", again)
		}
	})
}

// F-30: silent causes no turn and rides on none; the agent asks.
func TestListenSilent(t *testing.T) {
	t.Parallel()
	hear(t, []TopicSpec{{"a", ListenSilent}}, func(t *testing.T, e *ear) {
		e.publish("a", 2)
		time.Sleep(time.Hour)
		e.expect()
		if got := e.pull(); len(got) != 0 {
			t.Errorf("pulled %+v", got)
		}
		tools := e.tools()
		if len(tools) != 1 || tools[0].Name != toolTopicDigest || !strings.Contains(tools[0].Description, "a") {
			t.Fatalf("tools %+v", tools)
		}
		for _, want := range []string{"Since your last message: 2 x up.", "nothing since"} {
			result, err := tools[0].Call(t.Context(), nil)
			if err != nil || !strings.Contains(result.Text, want) {
				t.Errorf("asked: %+v, %v; want %q", result, err, want)
			}
		}
	})
}

// F-30: whatever comes, what is told stays small, and the loss is counted.
func TestListenIsBounded(t *testing.T) {
	t.Parallel()
	hear(t, []TopicSpec{{"a", ListenDigest}}, func(t *testing.T, e *ear) {
		e.publish("a", 4000)
		got := e.pull()
		if len(got) != 1 || !strings.HasPrefix(got[0].Notice.Text, "Since your last message: 4000 x up (3800 older events dropped).") || len(got[0].Notice.Text) > 600 {
			t.Errorf("pulled %+v", got)
		}
	})
}

func TestParseTopicSpec(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]TopicSpec{"a": {"a", ListenWake}, "a*=digest": {"a*", ListenDigest}, "*=silent": {"*", ListenSilent}} {
		if got, err := ParseTopicSpec(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "=wake", "A", "a=", "a=loud"} {
		if _, err := ParseTopicSpec(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
