package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// committed is an entry of the log, as the database tells it in the end.
type committed struct {
	id    int64
	topic string
	token string // unique: what the writer has put into the event
}

// received is what a subscriber got at one moment: an event, or word of a gap.
type received struct {
	committed
	gap *feed.Gap
}

// promise is what a subscriber may count on.
type promise struct {
	filter feed.Filter
	start  int64 // the position from which it has read
}

// auditable reports whether no event of a topic may be dropped.
func auditable(topic string) bool { return strings.HasPrefix(topic, "audit") }

// checkStream says what is wrong with what a subscriber got of the log.
func checkStream(log []committed, p promise, got []received) (wrong []string) {
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var want []committed // what is selected
	for _, c := range log {
		if c.id > p.start && p.filter.Match(c.topic) {
			want = append(want, c)
		}
	}
	between := func(from, to int64) []committed {
		i, _ := slices.BinarySearchFunc(want, from+1, byID)
		j, _ := slices.BinarySearchFunc(want, to+1, byID)
		return want[i:max(i, j)]
	}
	at := p.start // everything up to here is accounted for
	for _, r := range got {
		if g := r.gap; g != nil {
			if g.Reason != feed.Slow {
				fault("gap %+v, but nothing was removed", *g)
			}
			if g.From > at {
				if lost := between(at, g.From); len(lost) > 0 {
					fault("lost %d before the gap %+v, the first is %+v", len(lost), *g, lost[0])
				}
			}
			if g.To <= at {
				fault("gap %+v goes back, %d was reached", *g, at)
			}
			dropped := between(max(at, g.From), g.To)
			if g.Dropped != int64(len(dropped)) || g.Dropped == 0 {
				fault("gap %+v, but %d events are in it", *g, len(dropped))
			}
			if i := slices.IndexFunc(dropped, func(c committed) bool { return auditable(c.topic) }); i >= 0 {
				fault("gap %+v with %+v, which may not be dropped", *g, dropped[i])
			}
			at = max(at, g.To)
			continue
		}
		i, found := slices.BinarySearchFunc(log, r.id, byID)
		switch {
		case r.id <= at:
			fault("%+v comes twice or late, %d was reached", r.committed, at)
			continue
		case !found || log[i] != r.committed:
			fault("%+v was never committed", r.committed)
		case !p.filter.Match(r.topic):
			fault("%+v was not asked for", r.committed)
		}
		if lost := between(at, r.id-1); len(lost) > 0 {
			fault("lost %d before %+v, the first is %+v", len(lost), r.committed, lost[0])
		}
		at = r.id
	}
	if len(want) > 0 {
		if lost := between(at, want[len(want)-1].id); len(lost) > 0 {
			fault("lost the last %d, the first is %+v", len(lost), lost[0])
		}
	}
	return wrong
}

func byID(c committed, id int64) int {
	switch {
	case c.id < id:
		return -1
	case c.id > id:
		return 1
	}
	return 0
}

// checkLog says what is wrong with the log: acknowledged are the ids that
// publishers were told, by token; must are the tokens that are known to be
// committed by other means, each in its topic.
func checkLog(log []committed, acknowledged map[string]int64, must map[string]string) (wrong []string) {
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	at, seen := int64(0), map[string]int64{}
	for _, c := range log {
		if c.id <= at {
			fault("%+v comes after %d", c, at)
		}
		at = c.id
		if id, twice := seen[c.token]; twice {
			fault("%+v is also %d", c, id)
		}
		seen[c.token] = c.id
		id, published := acknowledged[c.token]
		topic, written := must[c.token]
		switch {
		case !published && !written:
			fault("%+v was never committed by its writer", c)
		case published && id != c.id:
			fault("%+v was acknowledged as %d", c, id)
		case written && topic != c.topic:
			fault("%+v belongs to the topic %s", c, topic)
		}
	}
	for token, id := range acknowledged {
		if seen[token] == 0 {
			fault("%s was acknowledged as %d and is not in the log", token, id)
		}
	}
	for token := range must {
		if seen[token] == 0 {
			fault("%s was committed and is not in the log", token)
		}
	}
	return wrong
}

// The checker must find every kind of fault, else the chaos proves nothing.
func TestFeedChecker(t *testing.T) {
	t.Parallel()
	a, b, c, d := committed{2, "a", "w1"}, committed{3, "b", "w2"}, committed{5, "a", "w3"}, committed{9, "a", "w4"}
	log := []committed{a, b, c, d}
	audit := committed{12, "audit.a", "w5"}
	only, err := feed.ParseFilter("a")
	if err != nil {
		t.Fatal(err)
	}
	all := promise{}
	onlyA := promise{filter: only}
	gap := func(from, to, dropped int64) received {
		return received{gap: &feed.Gap{From: from, To: to, Dropped: dropped, Reason: feed.Slow}}
	}
	events := func(of ...committed) (got []received) {
		for _, c := range of {
			got = append(got, received{committed: c})
		}
		return got
	}
	for _, test := range []struct {
		name string
		p    promise
		got  []received
		want string // within the only fault; empty: there is none
	}{
		{"all", all, events(a, b, c, d), ""},
		{"a filter", onlyA, events(a, c, d), ""},
		{"from a position", promise{start: 3}, events(c, d), ""},
		{"a gap that is told", all, append(append(events(a), gap(2, 5, 2)), events(d)...), ""},
		{"a gap that begins later", promise{filter: only}, append(append(events(a), gap(3, 5, 1)), events(d)...), ""},
		{"a gap at the end", all, append(events(a, b), gap(3, 9, 2)), ""},
		{"lost in the middle", all, events(a, c, d), "lost 1 before"},
		{"lost at the end", all, events(a, b, c), "lost the last 1"},
		{"nothing", all, nil, "lost the last 4"},
		{"twice", all, events(a, b, b, c, d), "twice or late"},
		{"out of order", promise{start: 3}, events(d, c), "lost 1 before"},
		{"another event", all, events(a, b, c, committed{7, "a", "w9"}, d), "never committed"},
		{"another content", all, events(a, b, committed{5, "a", "w9"}, d), "never committed"},
		{"not selected", onlyA, events(a, b, c, d), "not asked for"},
		{"a gap with nothing in it", all, append(events(a, b, c), gap(5, 6, 0)), "0 events are in it"},
		{"a gap that does not count", all, append(append(events(a), gap(2, 5, 1)), events(d)...), "2 events are in it"},
		{"a gap that begins too late", all, append(append(events(a), gap(3, 5, 1)), events(d)...), "before the gap"},
		{"a gap that goes back", all, append(events(a, b, c, d), gap(2, 5, 0)), "goes back"},
		{"a gap for another reason", all, []received{{gap: &feed.Gap{To: 9, Dropped: 4, Reason: feed.Epoch}}}, "nothing was removed"},
	} {
		wrong := checkStream(log, test.p, test.got)
		switch {
		case test.want == "" && len(wrong) > 0:
			t.Errorf("%s: %q", test.name, wrong)
		case test.want != "" && (len(wrong) == 0 || !strings.Contains(wrong[0], test.want)):
			t.Errorf("%s: %q, want %q", test.name, wrong, test.want)
		}
	}
	whole := append(slices.Clone(log), audit)
	if wrong := checkStream(whole, all, append(events(log...), gap(9, 12, 1))); len(wrong) != 1 || !strings.Contains(wrong[0], "may not be dropped") {
		t.Errorf("an auditable event in a gap: %q", wrong)
	}
	published := map[string]int64{"w1": 2, "w2": 3, "w3": 5}
	rows := map[string]string{"w4": "a"}
	for _, test := range []struct {
		name string
		log  []committed
		want string
	}{
		{"all", log, ""},
		{"an event lost", []committed{a, b, d}, "w3 was acknowledged"},
		{"a row lost", []committed{a, b, c}, "w4 was committed"},
		{"a row twice", append(slices.Clone(log), committed{12, "a", "w4"}), "is also 9"},
		{"another id", []committed{a, b, {6, "a", "w3"}, d}, "acknowledged as 5"},
		{"rolled back", append(slices.Clone(log), committed{12, "a", "w5"}), "never committed"},
		{"another topic", []committed{a, b, c, {9, "b", "w4"}}, "belongs to"},
		{"another order", []committed{b, a, c, d}, "comes after"},
	} {
		wrong := checkLog(test.log, published, rows)
		switch {
		case test.want == "" && len(wrong) > 0:
			t.Errorf("%s: %q", test.name, wrong)
		case test.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], test.want)):
			t.Errorf("%s: %q, want %q", test.name, wrong, test.want)
		}
	}
}
