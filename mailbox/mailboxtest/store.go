package mailboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// bench is one store under test.
type bench struct {
	*testing.T

	store mailbox.Store
	now   time.Time
	sent  int
	asked int
	many  int
}

// All is how many signals RunStore sends where it wants many.
const All = 10_000

// Everything keeps what there is.
var Everything = &mailbox.Retention{Count: -1, Bytes: -1, Age: -1}

// RunStore holds stores to the contract of mailbox.Store. open returns a store
// of a new session that keeps so much, which it closes at the end of the test. many is how many
// signals to send where many are wanted: All, or for a store that takes long over
// each as few as 600; with fewer than All bounds of a thousand are not tried.
func RunStore(t *testing.T, many int, open func(t *testing.T, keep *mailbox.Retention) mailbox.Store) {
	t.Helper()
	if raced || testing.Short() {
		many = min(many, 1000)
	}
	for name, test := range map[string]func(*bench){
		"identity": identity, "claims": claims, "claimed at once": claimedAtOnce, "hierarchy": hierarchy, "broadcast": broadcast,
		"acknowledge": acknowledge, "crash between": nothingIsMarkedByReading, "paging": paging, "sequences": sequences,
		"limiter": limiter, "clock set back": clockSetBack, "replies": replies, "sent": sentSignals, "contents": contents,
		"notes": notes, "whiteboard": whiteboard, "escalation": escalation, "escalation at once": escalationAtOnce,
		"escalated turn": escalatedTurn, "changes": changes, "deep names": deepNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&bench{T: t, many: many, store: open(t, Everything), now: time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC)})
		})
	}
	runRetention(t, open)
}

// plenty lets senders send.
var plenty = mailbox.Limits{Signals: 1 << 20, Escalations: 1 << 20}

func (b *bench) who(agent string) mailbox.Identity {
	return mailbox.Identity{Agent: agent, Run: "run-" + agent}
}

func (b *bench) join(agents ...string) {
	b.Helper()
	for _, a := range agents {
		if _, err := b.store.Register(b.Context(), mailbox.Registration{Agent: a, Run: "run-" + a, Harness: "h"}, b.now); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) draft(to string, t mailbox.Type) mailbox.Signal {
	b.sent++
	return mailbox.Signal{ID: fmt.Sprintf("s%d", b.sent), Time: b.now, Recipient: to, Type: t, Content: fmt.Sprintf("c%d", b.sent)}
}

func (b *bench) send(from, to string, t mailbox.Type) mailbox.Signal {
	b.Helper()
	s, err := b.store.Send(b.Context(), b.who(from), b.draft(to, t), plenty, b.now)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) unread(agent string) []string {
	b.Helper()
	p := b.read(mailbox.Selection{Agent: agent, Limit: mailbox.MaxPage})
	if p.Next == 0 && p.Unread != len(p.Signals) {
		b.Errorf("%d unread counted of %d", p.Unread, len(p.Signals))
	}
	return ids(p.Signals)
}

func (b *bench) read(q mailbox.Selection) mailbox.Page {
	b.Helper()
	p, err := b.store.Read(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b *bench) ack(agent string, ids ...string) []string {
	b.Helper()
	fresh, err := b.store.Ack(b.Context(), b.who(agent), ids, b.now)
	if err != nil {
		b.Fatal(err)
	}
	return fresh
}

func (b *bench) want(what string, got, want []string) {
	b.Helper()
	if !slices.Equal(got, want) {
		b.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func ids(signals []mailbox.Signal) []string {
	var all []string
	for _, s := range signals {
		all = append(all, s.ID)
	}
	return all
}

// S-7: who is not registered, or has another run token, can do nothing.
func identity(b *bench) {
	b.join("a", "b")
	s := b.send("b", "a", mailbox.Inform)
	for _, who := range []mailbox.Identity{{Agent: "a", Run: "other"}, {Agent: "nobody", Run: "run-a"}, {Agent: "a"}, {Agent: "a", Run: "run-b"}} {
		ctx := b.Context()
		for what, err := range map[string]error{
			"touch":  second(b.store.Touch(ctx, who, b.now)),
			"status": b.store.SetStatus(ctx, who, mailbox.Sleeping, b.now),
			"send":   second(b.store.Send(ctx, who, b.draft("b", mailbox.Inform), plenty, b.now)),
			"ack":    second(b.store.Ack(ctx, who, []string{s.ID}, b.now)),
			"note":   second(b.store.AddNote(ctx, who, "x", b.now)),
			"write":  second(b.store.SetEntry(ctx, who, "k", "v", b.now)),
		} {
			if !errors.As(err, new(*mailbox.LostError)) {
				b.Errorf("%s as %+v: %v", what, who, err)
			}
		}
	}
	b.want("b", b.unread("b"), nil)
	b.want("a", b.unread("a"), []string{"s1"})
	// The sender of a draft is who calls.
	d := b.draft("a", mailbox.Inform)
	d.Sender = "a"
	if got, err := b.store.Send(b.Context(), b.who("b"), d, plenty, b.now); err != nil || got.Sender != "b" {
		b.Errorf("sent by %q, %v", got.Sender, err)
	}
}

func second[T any](_ T, err error) error { return err }

// S-2, S-3: an id that is live is refused to another run and reclaimed by its own;
// a stale one, and that of who has left, is free, and its former holder is told.
func claims(b *bench) {
	ctx := b.Context()
	claim := func(run string) error {
		_, err := b.store.Register(ctx, mailbox.Registration{Agent: "a", Run: run, Harness: "h", Substrate: "m"}, b.now)
		return err
	}
	if err := claim("one"); err != nil {
		b.Fatal(err)
	}
	start := b.now
	b.now = start.Add(mailbox.StaleAfter - time.Nanosecond)
	if err := claim("two"); !errors.As(err, new(*mailbox.ConflictError)) {
		b.Errorf("a live id was given away: %v", err)
	}
	if err := claim("one"); err != nil {
		b.Errorf("the same run was refused: %v", err)
	}
	b.now = b.now.Add(mailbox.StaleAfter) // since the reclaim
	if err := claim("two"); err != nil {
		b.Errorf("a stale id was refused: %v", err)
	}
	if _, err := b.store.Touch(ctx, mailbox.Identity{Agent: "a", Run: "one"}, b.now); !errors.As(err, new(*mailbox.LostError)) {
		b.Errorf("the former holder is not told: %v", err)
	}
	if err := b.store.SetStatus(ctx, mailbox.Identity{Agent: "a", Run: "two"}, mailbox.Idle, b.now); err != nil {
		b.Error(err)
	}
	if err := claim("three"); !errors.As(err, new(*mailbox.ConflictError)) {
		b.Errorf("an idle id was given away: %v", err)
	}
	if err := b.store.SetStatus(ctx, mailbox.Identity{Agent: "a", Run: "two"}, mailbox.Sleeping, b.now); err != nil {
		b.Error(err)
	}
	if err := claim("three"); err != nil {
		b.Errorf("the id of who has left was refused: %v", err)
	}
	all, err := b.store.Agents(ctx)
	want := mailbox.Agent{ID: "a", Harness: "h", Substrate: "m", Status: mailbox.Active, RegisteredAt: start, LastSeen: b.now}
	if err != nil || len(all) != 1 || all[0] != want {
		b.Errorf("%+v, %v", all, err)
	}
}

// S-2: of runs that claim an id at the same instant one wins, and each of the
// others is told.
func claimedAtOnce(b *bench) {
	const runs = 8
	var wg sync.WaitGroup
	errs := make([]error, runs)
	for i := range runs {
		wg.Go(func() {
			_, errs[i] = b.store.Register(b.Context(), mailbox.Registration{Agent: "a", Run: fmt.Sprint("run", i)}, b.now)
		})
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
			if _, err := b.store.Touch(b.Context(), mailbox.Identity{Agent: "a", Run: fmt.Sprint("run", i)}, b.now); err != nil {
				b.Errorf("the winner does not have it: %v", err)
			}
		case !errors.As(err, new(*mailbox.ConflictError)):
			b.Errorf("the loser is told %v", err)
		}
	}
	if won != 1 {
		b.Errorf("%d have won", won)
	}
}

// S-4: the dotted descendants of a recipient receive, others with the same
// beginning do not, and neither do ancestors.
func hierarchy(b *bench) {
	b.join("lead", "lead.critic", "lead.critic.deep", "leader", "other")
	b.send("other", "lead", mailbox.Inform)
	b.send("other", "lead.critic", mailbox.Inform)
	b.want("lead", b.unread("lead"), []string{"s1"})
	b.want("lead.critic", b.unread("lead.critic"), []string{"s1", "s2"})
	b.want("lead.critic.deep", b.unread("lead.critic.deep"), []string{"s1", "s2"})
	b.want("leader", b.unread("leader"), nil)
	b.want("other", b.unread("other"), nil)
	// Within its own family nobody receives what it sends.
	b.send("lead.critic", "lead", mailbox.Inform)
	b.want("lead.critic", b.unread("lead.critic"), []string{"s1", "s2"})
	b.want("deep", b.unread("lead.critic.deep"), []string{"s1", "s2", "s3"})
}

// S-5: a broadcast that one has read is unread for the others, also for who joins
// later; its sender does not receive it.
func broadcast(b *bench) {
	b.join("a", "b", "c")
	b.send("a", mailbox.Everybody, mailbox.Warn)
	b.want("fresh", b.ack("b", "s1"), []string{"s1"})
	b.want("a", b.unread("a"), nil)
	b.want("b", b.unread("b"), nil)
	b.want("c", b.unread("c"), []string{"s1"})
	b.join("late")
	b.want("late", b.unread("late"), []string{"s1"})
}

// S-6: acknowledging is idempotent, all or nothing, and names what is not yours
// or does not exist.
func acknowledge(b *bench) {
	b.join("a", "b", "c")
	for range 3 {
		b.send("a", "b", mailbox.Inform)
	}
	b.send("a", "c", mailbox.Inform)
	b.want("first", b.ack("b", "s2", "s2"), []string{"s2"})
	b.want("again", b.ack("b", "s2", "s1"), []string{"s1"})
	_, err := b.store.Ack(b.Context(), b.who("b"), []string{"s3", "s4", "no", "s1"}, b.now)
	wrong, ok := errors.AsType[*mailbox.IDsError](err)
	if !ok {
		b.Fatalf("got %v", err)
	}
	b.want("wrong", wrong.IDs, []string{"s4", "no"})
	b.want("b", b.unread("b"), []string{"s3"})
	b.want("c", b.unread("c"), []string{"s4"})
	if _, err := b.store.Ack(b.Context(), b.who("a"), []string{"s1"}, b.now); !errors.As(err, new(*mailbox.IDsError)) {
		b.Errorf("the sender acknowledged: %v", err)
	}
	b.want("rest", b.ack("b", "s3"), []string{"s3"})
	b.want("replay", b.ack("b", "s1", "s2", "s3"), nil)
	all := b.read(mailbox.Selection{Agent: "b", All: true})
	b.want("all", ids(all.Signals), []string{"s1", "s2", "s3"})
	for _, s := range all.Signals {
		if !s.Read {
			b.Errorf("%s is not marked", s.ID)
		}
	}
	b.send("a", "b", mailbox.Inform)
	b.want("after all", b.unread("b"), []string{"s5"})
}

// S-6: reading marks nothing, however often.
func nothingIsMarkedByReading(b *bench) {
	b.join("a", "b")
	b.send("a", "b", mailbox.Delegate)
	for range 3 {
		b.want("b", b.unread("b"), []string{"s1"})
	}
}

// 10,000 unread come exactly, in pages of bounded number and size.
func paging(b *bench) {
	all := b.many / 100 * 100
	b.join("a", "b")
	for range all {
		b.send("a", "b", mailbox.Inform)
	}
	var got []string
	pages := 0
	for after := int64(0); ; pages++ {
		p := b.read(mailbox.Selection{Agent: "b", After: after, Limit: 1 << 30})
		if len(p.Signals) > mailbox.MaxPage || p.Unread != all {
			b.Fatalf("%d of %d in one page", len(p.Signals), p.Unread)
		}
		got = append(got, ids(p.Signals)...)
		if p.Next == 0 {
			break
		}
		after = p.Next
	}
	if len(got) != all || got[0] != "s1" || got[all-1] != fmt.Sprintf("s%d", all) || pages != (all-1)/mailbox.MaxPage {
		b.Errorf("%d signals in %d pages more", len(got), pages)
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != all {
		b.Error("some came twice")
	}
	// By size.
	b.join("c")
	for range 20 {
		s := b.draft("c", mailbox.Inform)
		s.Content = strings.Repeat("x", mailbox.MaxContent)
		if _, err := b.store.Send(b.Context(), b.who("a"), s, plenty, b.now); err != nil {
			b.Fatal(err)
		}
	}
	first := b.read(mailbox.Selection{Agent: "c"})
	rest := b.read(mailbox.Selection{Agent: "c", After: first.Next})
	if len(first.Signals) != mailbox.MaxPageBytes/mailbox.MaxContent || len(rest.Signals) != 4 || rest.Next != 0 {
		b.Errorf("%d and %d", len(first.Signals), len(rest.Signals))
	}
}

// S-4: sequences are 1, 2, 3 …, in one order for all, whatever was refused between
// them, also with many senders at once.
func sequences(b *bench) {
	b.join("a", "b", "c", "r")
	var wg sync.WaitGroup
	for _, from := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for i := range 20 {
				s := mailbox.Signal{ID: fmt.Sprint(from, i), Time: b.now, Recipient: "r", Type: mailbox.Inform, Content: "x"}
				if _, err := b.store.Send(b.Context(), b.who(from), s, plenty, b.now); err != nil {
					b.Error(err)
				}
				if i%5 == 0 {
					s.ReplyTo = "nothing"
					_, _ = b.store.Send(b.Context(), b.who(from), s, plenty, b.now) // refused
				}
			}
		})
	}
	wg.Wait()
	p := b.read(mailbox.Selection{Agent: "r", Limit: mailbox.MaxPage})
	if len(p.Signals) != 60 {
		b.Fatalf("%d", len(p.Signals))
	}
	for i, s := range p.Signals {
		if s.Sequence != int64(i+1) {
			b.Errorf("sequence %d at %d", s.Sequence, i)
		}
	}
}

// S-7: ten in a minute, then one more for each six seconds, per sender, and the
// error says how long to wait.
func limiter(b *bench) {
	b.join("a", "b", "r")
	try := func(from string) error {
		return second(b.store.Send(b.Context(), b.who(from), b.draft("r", mailbox.Inform), mailbox.Limits{}, b.now))
	}
	for i := range 10 {
		if err := try("a"); err != nil {
			b.Fatalf("signal %d: %v", i+1, err)
		}
	}
	over, ok := errors.AsType[*mailbox.RateError](try("a"))
	if !ok || over.Limit != 10 || over.Seconds() != 6 {
		b.Fatalf("%+v", over)
	}
	if err := try("b"); err != nil {
		b.Errorf("another sender: %v", err)
	}
	b.now = b.now.Add(6*time.Second - time.Millisecond)
	if err := try("a"); !errors.As(err, new(*mailbox.RateError)) {
		b.Errorf("too early: %v", err)
	}
	b.now = b.now.Add(time.Millisecond)
	if err := try("a"); err != nil {
		b.Errorf("after the time that it said: %v", err)
	}
	if p := b.read(mailbox.Selection{Agent: "r", Limit: 100}); len(p.Signals) != 12 {
		b.Errorf("%d signals", len(p.Signals))
	}
	// S-19: a sender's own limit.
	if _, err := b.store.Register(b.Context(), mailbox.Registration{Agent: "c", Run: "run-c", Limits: mailbox.Limits{Signals: 1}}, b.now); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(try("c")); err != nil {
		b.Error(err)
	}
	if over, ok := errors.AsType[*mailbox.RateError](try("c")); !ok || over.Seconds() != 60 {
		b.Errorf("%+v", over)
	}
}

// A clock that is set back reorders nothing, frees no limiter, and blocks none for
// ever.
func clockSetBack(b *bench) {
	b.join("a", "r")
	for range 10 {
		if err := second(b.store.Send(b.Context(), b.who("a"), b.draft("r", mailbox.Inform), mailbox.Limits{}, b.now)); err != nil {
			b.Fatal(err)
		}
	}
	b.now = b.now.Add(-24 * time.Hour)
	if err := second(b.store.Send(b.Context(), b.who("a"), b.draft("r", mailbox.Inform), mailbox.Limits{}, b.now)); !errors.As(err, new(*mailbox.RateError)) {
		b.Errorf("the limiter is free: %v", err)
	}
	s := b.draft("r", mailbox.Inform)
	if got, err := b.store.Send(b.Context(), b.who("a"), s, plenty, b.now); err != nil || got.Sequence != 11 {
		b.Errorf("%+v, %v", got, err)
	}
	b.now = b.now.Add(time.Minute)
	if err := second(b.store.Send(b.Context(), b.who("a"), b.draft("r", mailbox.Inform), mailbox.Limits{}, b.now)); err != nil {
		b.Errorf("blocked after a minute: %v", err)
	}
	all := b.read(mailbox.Selection{Agent: "r", Limit: 100})
	if !slices.IsSortedFunc(all.Signals, func(x, y mailbox.Signal) int { return cmp.Compare(x.Sequence, y.Sequence) }) || len(all.Signals) != 12 {
		b.Errorf("%v", ids(all.Signals))
	}
	// Nobody stays alive by a time in the future.
	if mailbox.Live(mailbox.Active, b.now.Add(48*time.Hour), b.now) {
		b.Error("alive for ever")
	}
}

// A reply is to what one got or sent, and to nothing else.
func replies(b *bench) {
	b.join("a", "b", "c")
	b.send("a", "b", mailbox.Query)
	reply := func(from, to string) error {
		s := b.draft("a", mailbox.Ack)
		s.ReplyTo = to
		got, err := b.store.Send(b.Context(), b.who(from), s, plenty, b.now)
		if err == nil && got.ReplyTo != to {
			b.Errorf("reply to %q", got.ReplyTo)
		}
		return err
	}
	if err := errors.Join(reply("b", "s1"), reply("a", "s1")); err != nil {
		b.Error(err)
	}
	for _, err := range []error{reply("c", "s1"), reply("b", "s99")} {
		if !errors.As(err, new(*mailbox.InvalidError)) {
			b.Errorf("%v", err)
		}
	}
}

// The sender sees who has read what it sent.
func sentSignals(b *bench) {
	b.join("a", "b", "c")
	b.send("a", mailbox.Everybody, mailbox.Inform)
	b.send("b", "a", mailbox.Inform)
	b.send("a", "c", mailbox.Inform)
	b.ack("c", "s1")
	b.ack("b", "s1")
	p := b.read(mailbox.Selection{Agent: "a", Sent: true})
	b.want("sent", ids(p.Signals), []string{"s1", "s3"})
	b.want("read by", p.Signals[0].ReadBy, []string{"b", "c"})
	b.want("read by nobody", p.Signals[1].ReadBy, nil)
}

// What was sent comes back as it was.
func contents(b *bench) {
	b.join("a", "b")
	s := mailbox.Signal{
		ID: "x", Time: b.now, Recipient: "b", Type: mailbox.Warn, Priority: mailbox.Urgent, Content: "é\x00\n\"'; DROP TABLE mailbox_signal; --",
		Metadata: json.RawMessage(`{"n":1915883588174806058,"k":[1.0,"<b>"]}`),
	}
	if _, err := b.store.Send(b.Context(), b.who("a"), s, plenty, b.now); err != nil {
		b.Fatal(err)
	}
	got := b.read(mailbox.Selection{Agent: "b"}).Signals[0]
	s.Sender, s.Sequence = "a", 1
	found, ok, err := b.store.Find(b.Context(), "x")
	if _, other, err := b.store.Find(b.Context(), "y"); err != nil || other {
		b.Errorf("%v", err)
	}
	if err != nil || !ok || fmt.Sprintf("%+v", found) != fmt.Sprintf("%+v", s) {
		b.Errorf("found %+v, %v", found, err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", s) {
		b.Errorf("got %+v", got)
	}
}

// S-8: notes are appended, for all, in order.
func notes(b *bench) {
	b.join("a", "b")
	for i := range 5 {
		n, err := b.store.AddNote(b.Context(), b.who([]string{"a", "b"}[i%2]), fmt.Sprint("n", i), b.now)
		if err != nil || n.Sequence != int64(i+1) {
			b.Fatalf("%+v, %v", n, err)
		}
	}
	first, next, err := b.store.Notes(b.Context(), 0, 3)
	rest, end, err2 := b.store.Notes(b.Context(), next, 3)
	if err := errors.Join(err, err2); err != nil || len(first) != 3 || len(rest) != 2 || next != 3 || end != 0 {
		b.Fatalf("%v %d, %v %d, %v", first, next, rest, end, err)
	}
	if want := (mailbox.Note{Sequence: 4, Time: b.now, Author: "b", Text: "n3"}); rest[0] != want {
		b.Errorf("%+v", rest[0])
	}
}

// S-8: the last write of a key stands, with who made it and when; the number of
// keys is bounded.
func whiteboard(b *bench) {
	b.join("a", "b")
	set := func(who, key, value string) error {
		return second(b.store.SetEntry(b.Context(), b.who(who), key, value, b.now))
	}
	if err := errors.Join(set("a", "k", "1"), set("b", "j", "2"), set("b", "k", "3")); err != nil {
		b.Fatal(err)
	}
	all, err := b.store.Entries(b.Context(), "")
	one, err2 := b.store.Entries(b.Context(), "k")
	want := mailbox.Entry{Key: "k", Value: "3", UpdatedBy: "b", UpdatedAt: b.now}
	if err := errors.Join(err, err2); err != nil || len(all) != 2 || all[0].Key != "j" || all[1] != want || len(one) != 1 || one[0] != want {
		b.Fatalf("%+v, %+v, %v", all, one, err)
	}
	if b.many < All {
		return
	}
	for i := range mailbox.MaxEntries - 2 {
		if err := set("a", fmt.Sprint("x", i), ""); err != nil {
			b.Fatal(err)
		}
	}
	if err := set("a", "over", ""); !errors.As(err, new(*mailbox.FullError)) {
		b.Errorf("over the bound: %v", err)
	}
	if err := set("a", "k", "4"); err != nil {
		b.Errorf("a key that is there: %v", err)
	}
}

func (b *bench) escalate(agent string, after int64, limits mailbox.Limits, retry bool) mailbox.Escalation {
	b.Helper()
	b.asked++
	e, err := b.store.Escalate(b.Context(), mailbox.Escalate{
		ID: fmt.Sprint("asked", b.asked), Agent: agent, After: after, Limits: limits, Now: b.now, Until: b.now.Add(mailbox.TurnTime), Retry: retry,
	})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// S-14: what passes the gate is taken once, two in a minute for the session.
func escalation(b *bench) {
	b.join("a", "b", "c")
	if e := b.escalate("b", 0, mailbox.Limits{}, false); len(e.Signals) != 0 || e.Refused != mailbox.Passed {
		b.Errorf("nothing: %+v", e)
	}
	b.send("a", "b", mailbox.Inform)
	b.send("a", "b", mailbox.Delegate)
	read := b.send("a", "b", mailbox.Urgent)
	b.ack("b", read.ID)
	urgent := b.draft("b", mailbox.Inform)
	urgent.Priority = mailbox.Urgent
	if _, err := b.store.Send(b.Context(), b.who("a"), urgent, plenty, b.now); err != nil {
		b.Fatal(err)
	}
	b.want("first", ids(b.escalate("b", 0, mailbox.Limits{}, false).Signals), []string{"s2", "s4"})
	b.want("taken", ids(b.escalate("b", 0, mailbox.Limits{}, false).Signals), nil)
	b.now = b.now.Add(time.Second)
	b.send("a", "c", mailbox.Urgent)
	b.want("second", ids(b.escalate("c", 0, mailbox.Limits{}, false).Signals), []string{"s5"})
	b.send("a", "c", mailbox.Urgent)
	e := b.escalate("c", 0, mailbox.Limits{}, true)
	if e.Refused != mailbox.TooMany || len(e.Signals) != 0 || e.Wait != 59*time.Second {
		b.Errorf("third: %+v", e)
	}
	b.now = b.now.Add(59*time.Second - time.Nanosecond)
	if e := b.escalate("c", 0, mailbox.Limits{}, true); e.Refused != mailbox.TooMany {
		b.Errorf("too early: %+v", e)
	}
	b.now = b.now.Add(time.Nanosecond)
	b.want("a minute later", ids(b.escalate("c", 0, mailbox.Limits{}, true).Signals), []string{"s6"})
	b.send("a", "c", mailbox.Urgent)
	if e := b.escalate("c", 0, mailbox.Limits{}, false); e.Refused != mailbox.TooMany {
		b.Errorf("%+v", e)
	}
	b.now = b.now.Add(time.Hour)
	b.want("refused for good", ids(b.escalate("c", 0, mailbox.Limits{}, false).Signals), nil)
	b.send("a", "c", mailbox.Urgent)
	last := b.send("a", "c", mailbox.Urgent)
	b.want("after", ids(b.escalate("c", last.Sequence-1, mailbox.Limits{}, false).Signals), []string{last.ID})
	// S-19: an agent's own limit.
	if _, err := b.store.Register(b.Context(), mailbox.Registration{Agent: "d", Run: "run-d", Limits: mailbox.Limits{Escalations: 1, Tokens: 100}}, b.now); err != nil {
		b.Fatal(err)
	}
	b.send("a", "d", mailbox.Urgent)
	if e := b.escalate("d", 0, plenty, false); len(e.Signals) != 1 || e.Limits.Tokens != 100 {
		b.Errorf("%+v", e)
	}
	b.send("a", "d", mailbox.Urgent)
	if e := b.escalate("d", 0, plenty, false); e.Refused != mailbox.TooMany {
		b.Errorf("%+v", e)
	}
	// A clock that is set back blocks for no more than a minute.
	b.now = b.now.Add(-24 * time.Hour)
	b.send("a", "d", mailbox.Urgent)
	b.want("set back", ids(b.escalate("d", 0, mailbox.Limits{}, false).Signals), []string{fmt.Sprintf("s%d", b.sent)})
}

// One signal is escalated by one of those who try at once.
func escalationAtOnce(b *bench) {
	b.join("a", "b")
	b.send("a", "b", mailbox.Delegate)
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 8 {
		wg.Go(func() {
			e, err := b.store.Escalate(b.Context(), mailbox.Escalate{
				ID: fmt.Sprint("e", i), Agent: "b", Limits: plenty, Now: b.now, Until: b.now.Add(time.Minute),
			})
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			taken += len(e.Signals)
		})
	}
	wg.Wait()
	if taken != 1 {
		b.Errorf("taken %d times", taken)
	}
}

// S-16: inside an escalated turn urgent and delegate are refused, the others have
// depth 1; it ends when it is settled, and by itself.
func escalatedTurn(b *bench) {
	b.join("a", "b")
	try := func(t, priority mailbox.Type) (mailbox.Signal, error) {
		s := b.draft("a", t)
		s.Priority, s.Depth = priority, 7 // the caller's word counts for nothing
		return b.store.Send(b.Context(), b.who("b"), s, plenty, b.now)
	}
	b.send("a", "b", mailbox.Delegate)
	e := b.escalate("b", 0, mailbox.Limits{}, false)
	for _, c := range [][2]mailbox.Type{{mailbox.Delegate, ""}, {mailbox.Urgent, ""}, {mailbox.Inform, mailbox.Urgent}} {
		if _, err := try(c[0], c[1]); !errors.As(err, new(*mailbox.EscalatedError)) {
			b.Errorf("%v passed: %v", c, err)
		}
	}
	for _, typ := range []mailbox.Type{mailbox.Inform, mailbox.Ack, mailbox.Query, mailbox.Warn} {
		if s, err := try(typ, ""); err != nil || s.Depth != 1 {
			b.Errorf("%s: %+v, %v", typ, s, err)
		}
	}
	if err := b.store.Settle(b.Context(), "b", "another"); err != nil {
		b.Error(err)
	}
	if _, err := try(mailbox.Delegate, ""); !errors.As(err, new(*mailbox.EscalatedError)) {
		b.Errorf("settled by another: %v", err)
	}
	for range 2 {
		if err := b.store.Settle(b.Context(), "b", e.ID); err != nil {
			b.Error(err)
		}
	}
	if s, err := try(mailbox.Delegate, ""); err != nil || s.Depth != 0 {
		b.Errorf("after the turn: %+v, %v", s, err)
	}
	b.send("a", "b", mailbox.Delegate)
	b.escalate("b", 0, mailbox.Limits{}, false)
	b.now = b.now.Add(mailbox.TurnTime - time.Nanosecond)
	if _, err := try(mailbox.Delegate, ""); !errors.As(err, new(*mailbox.EscalatedError)) {
		b.Errorf("still in it: %v", err)
	}
	b.now = b.now.Add(time.Nanosecond)
	if _, err := try(mailbox.Delegate, ""); err != nil {
		b.Errorf("over by itself: %v", err)
	}
}

// S-12: every change is seen by who has seen those before, once.
func changes(b *bench) {
	get := func(since mailbox.Heads) mailbox.Changes {
		b.Helper()
		c, err := b.store.Changes(b.Context(), since)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	start := get(mailbox.Heads{})
	b.join("a", "b")
	joined := get(start.Heads)
	if joined.Heads.Agents == start.Heads.Agents {
		b.Error("a member is no change")
	}
	b.send("a", "b", mailbox.Delegate)
	sent := get(joined.Heads)
	want := mailbox.Envelope{Sequence: 1, Sender: "a", Recipient: "b", Type: mailbox.Delegate}
	if sent.Heads.Signals != 1 || len(sent.Envelopes) != 1 || sent.Envelopes[0] != want || sent.Heads.Agents != joined.Heads.Agents {
		b.Errorf("%+v", sent)
	}
	b.ack("b", "s1")
	b.unread("b")
	if changed, err := b.store.Touch(b.Context(), b.who("a"), b.now); err != nil || changed {
		b.Fatal(changed, err)
	}
	if got := get(sent.Heads); got.Heads != sent.Heads || len(got.Envelopes) != 0 {
		b.Errorf("changed by reads and acknowledgements: %+v", got)
	}
	if err := second(b.store.AddNote(b.Context(), b.who("a"), "x", b.now)); err != nil {
		b.Fatal(err)
	}
	if err := second(b.store.SetEntry(b.Context(), b.who("a"), "k", "v", b.now)); err != nil {
		b.Fatal(err)
	}
	got := get(sent.Heads)
	if got.Heads.Notes != sent.Heads.Notes+1 || got.Heads.Board != sent.Heads.Board+1 || got.Heads.Signals != 1 {
		b.Errorf("%+v", got)
	}
	// S-3: who comes back from being stale is a change.
	b.now = b.now.Add(mailbox.StaleAfter)
	if changed, err := b.store.Touch(b.Context(), b.who("a"), b.now); err != nil || !changed {
		b.Fatal(changed, err)
	}
	if again := get(got.Heads); again.Heads.Agents == got.Heads.Agents {
		b.Error("who came back is no change")
	}
	if b.many < All {
		return
	}
	for range mailbox.MaxChanges + 1 {
		b.send("a", "b", mailbox.Inform)
	}
	part := get(got.Heads)
	if len(part.Envelopes) != mailbox.MaxChanges || part.Heads.Signals != mailbox.MaxChanges+1 {
		b.Errorf("%d envelopes to %d", len(part.Envelopes), part.Heads.Signals)
	}
	if rest := get(part.Heads); len(rest.Envelopes) != 1 || rest.Heads.Signals != mailbox.MaxChanges+2 {
		b.Errorf("%d envelopes to %d", len(rest.Envelopes), rest.Heads.Signals)
	}
}

// Names of as many levels as an id can have receive what is for those above.
func deepNames(b *bench) {
	deep := strings.Repeat("a.", 63) + "a"
	b.join(deep, "x")
	b.send("x", "a", mailbox.Inform)
	b.send("x", mailbox.Everybody, mailbox.Inform)
	b.send("x", deep, mailbox.Inform)
	b.send("x", strings.Repeat("a.", 40)+"a", mailbox.Delegate)
	b.send("x", "b", mailbox.Inform)
	b.want("deep", b.unread(deep), []string{"s1", "s2", "s3", "s4"})
	b.want("escalated", ids(b.escalate(deep, 0, mailbox.Limits{}, false).Signals), []string{"s4"})
	b.want("acknowledged", b.ack(deep, "s1", "s2", "s4"), []string{"s1", "s2", "s4"})
	b.want("left", b.unread(deep), []string{"s3"})
}

// RunBus holds buses to the contract of mailbox.Bus. open returns two buses of one
// session.
func RunBus(t *testing.T, open func(t *testing.T) (ringing, listening mailbox.Bus)) {
	t.Helper()
	ringing, listening := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	rung := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() { done <- listening.Listen(ctx, func() { rung <- struct{}{} }) }()
	await := func() {
		t.Helper()
		select {
		case <-rung:
		case <-ctx.Done():
			t.Fatal("not rung")
		}
	}
	await() // as soon as it hears
	drain := func() {
		for {
			select {
			case <-rung:
			default:
				return
			}
		}
	}
	for range 3 {
		drain()
		if err := ringing.Ring(ctx); err != nil {
			t.Fatal(err)
		}
		await()
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended: %v", err)
	}
}
