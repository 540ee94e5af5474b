package mailboxtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// runRetention holds stores to what mailbox.Retention says.
func runRetention(t *testing.T, open func(t *testing.T, keep *mailbox.Retention) mailbox.Store) {
	t.Helper()
	for name, test := range map[string]func(*bench, func(mailbox.Retention)){
		"what is done goes": doneGoes, "what is unread stays": unreadStays, "who is away": awayMember, "kept by age": keptByAge,
		"kept by size": keptBySize, "addressed to nobody": toNobody, "old notes": oldNotes, "too many members": tooManyMembers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{T: t, now: time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC)}
			test(b, func(keep mailbox.Retention) { b.store = open(t, &keep) })
		})
	}
}

func (b *bench) kept(agent string, sent bool) []string {
	b.Helper()
	return ids(b.read(mailbox.Selection{Agent: agent, All: true, Sent: sent, Limit: mailbox.MaxPage}).Signals)
}

func (b *bench) full(from, to string) bool {
	b.Helper()
	_, err := b.store.Send(b.Context(), b.who(from), b.draft(to, mailbox.Inform), plenty, b.now)
	if err != nil && !errors.As(err, new(*mailbox.FullError)) {
		b.Fatal(err)
	}
	return err != nil
}

// The oldest of what all recipients have acknowledged goes, for all of them; the
// sequence goes on, and so do announcements.
func doneGoes(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: 3, Bytes: -1, Age: -1})
	b.join("a", "b", "c")
	var sent []string
	for range 3 {
		s := b.send("a", "*", mailbox.Inform)
		sent = append(sent, s.ID)
		b.ack("b", s.ID)
		b.ack("c", s.ID)
	}
	for range 2 {
		s := b.send("a", "b", mailbox.Inform)
		sent = append(sent, s.ID)
		b.ack("b", s.ID)
	}
	b.send("c", "b", mailbox.Inform) // one that looks after the fifth is done
	b.want("kept of what was sent", b.kept("a", true), sent[2:])
	b.want("kept for one", b.kept("b", false), append(slices.Clone(sent[2:]), "s6"))
	b.want("kept for another", b.kept("c", false), sent[2:3])
	if p := b.read(mailbox.Selection{Agent: "b"}); p.Unread != 1 || p.Missed != 0 || p.Signals[0].Sequence != 6 {
		b.Errorf("%+v", p)
	}
	if _, found, err := b.store.Find(b.Context(), sent[0]); err != nil || found {
		b.Errorf("found %v, %v", found, err)
	}
	var missing *mailbox.IDsError
	if _, err := b.store.Ack(b.Context(), b.who("b"), []string{sent[0]}, b.now); !errors.As(err, &missing) {
		b.Errorf("acknowledged what is gone: %v", err)
	}
	reply := b.draft("a", mailbox.Ack)
	reply.ReplyTo = sent[0]
	if _, err := b.store.Send(b.Context(), b.who("b"), reply, plenty, b.now); !errors.As(err, new(*mailbox.InvalidError)) {
		b.Errorf("replied to what is gone: %v", err)
	}
	c, err := b.store.Changes(b.Context(), mailbox.Heads{Signals: 4})
	if err != nil || c.Heads.Signals != 6 || len(c.Envelopes) != 2 || c.Envelopes[0].Sequence != 5 {
		b.Errorf("%+v, %v", c, err)
	}
	if c, err = b.store.Changes(b.Context(), mailbox.Heads{}); err != nil || c.Heads.Signals != 6 || len(c.Envelopes) != 4 {
		b.Errorf("%+v, %v", c, err)
	}
}

// S-6: what is unread stays, however much there is; it is the sender that is told
// to wait, and it is let go on as soon as there is room.
func unreadStays(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: 3, Bytes: -1, Age: time.Hour})
	b.join("a", "b", "c", "d")
	s1, s2, s3 := b.send("a", "*", mailbox.Inform), b.send("a", "b", mailbox.Inform), b.send("a", "b", mailbox.Inform)
	b.ack("b", s1.ID)
	b.ack("c", s1.ID)
	b.now = b.now.Add(2 * time.Hour)
	if !b.full("a", "b") {
		b.Error("a fourth was taken while three wait")
	}
	if b.full("c", "b") {
		b.Error("another sender was held up")
	}
	b.want("unread", b.unread("b"), []string{s2.ID, s3.ID, "s5"})
	b.ack("d", s1.ID) // the last one who had not
	if b.full("a", "b") {
		b.Error("there was room, and it was refused")
	}
	b.want("what is left", b.kept("a", true), []string{s2.ID, s3.ID, "s6"}) // the first is done and old
	b.want("unread", b.unread("b"), []string{s2.ID, s3.ID, "s5", "s6"})
}

// Nobody waits for a member that has been away for a week. What goes meanwhile, it
// is told how much.
func awayMember(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: 2, Bytes: -1, Age: -1})
	b.join("a", "b", "gone")
	early := b.send("a", "*", mailbox.Inform)
	b.ack("b", early.ID)
	b.ack("gone", early.ID)
	one, two := b.send("a", "*", mailbox.Inform), b.send("a", "*", mailbox.Inform)
	b.ack("b", one.ID, two.ID)
	if !b.full("a", "b") {
		b.Error("a third was taken while two wait for one who was here just now")
	}
	b.now = b.now.Add(mailbox.AwayAfter + time.Minute)
	b.join("b")
	if b.full("a", "b") {
		b.Error("held up by one who is away")
	}
	b.join("late") // who joins now misses nothing of what was before
	three := b.kept("a", true)[2:]
	b.want("kept", b.kept("a", true), []string{one.ID, two.ID, three[0]})
	if p := b.read(mailbox.Selection{Agent: "gone"}); p.Missed != 0 || p.Unread != 2 {
		b.Errorf("still there: %+v", p)
	}
	b.ack("b", three...)
	b.send("a", "b", mailbox.Inform)
	b.send("a", "b", mailbox.Inform)
	if p := b.read(mailbox.Selection{Agent: "gone"}); p.Missed != 1 || p.Unread != 1 || p.Signals[0].ID != two.ID {
		b.Errorf("who was away is told: %+v", p)
	}
	for _, other := range []string{"b", "late", "a"} {
		if p := b.read(mailbox.Selection{Agent: other}); p.Missed != 0 {
			b.Errorf("%s has missed %d", other, p.Missed)
		}
	}
	b.ack("gone", two.ID) // its own are as they were
	b.want("unread", b.unread("gone"), nil)
}

func keptByAge(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: -1, Bytes: -1, Age: time.Hour})
	b.join("a", "b")
	s := b.send("a", "b", mailbox.Inform)
	b.ack("b", s.ID)
	b.now = b.now.Add(time.Hour - 1)
	b.send("a", "b", mailbox.Inform)
	b.want("just before", b.kept("b", false), []string{"s1", "s2"})
	b.now = b.now.Add(1)
	b.send("a", "b", mailbox.Inform)
	b.want("an hour later", b.kept("b", false), []string{"s2", "s3"})
}

// Contents and metadata count, and one call removes a bounded number.
func keptBySize(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: -1, Bytes: 1000, Age: -1})
	b.join("a", "b")
	big := func(n int) mailbox.Signal {
		d := b.draft("b", mailbox.Inform)
		d.Content, d.Metadata = strings.Repeat("é", n/2-4), []byte(`{"a":12}`)
		s, err := b.store.Send(b.Context(), b.who("a"), d, plenty, b.now)
		if err != nil {
			b.Fatal(err)
		}
		b.ack("b", s.ID)
		return s
	}
	for range 4 {
		big(300)
	}
	b.want("kept", b.kept("b", false), []string{"s1", "s2", "s3", "s4"}) // 900 bytes were done when the fourth came
	if b.full("a", "b") {
		b.Error("no room for a small one")
	}
	b.want("kept", b.kept("b", false), []string{"s2", "s3", "s4", "s5"}) // 1200 were
	d := b.draft("b", mailbox.Inform)
	d.Content = strings.Repeat("x", 1001)
	if _, err := b.store.Send(b.Context(), b.who("a"), d, plenty, b.now); !errors.As(err, new(*mailbox.FullError)) {
		b.Errorf("more than fits at all: %v", err)
	}
}

// What is addressed to an id that nobody has waits for somebody to take it, for a
// week; then it makes room.
func toNobody(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: 2, Bytes: -1, Age: -1})
	b.join("a")
	b.send("a", "later", mailbox.Inform)
	b.now = b.now.Add(mailbox.AwayAfter)
	b.send("a", "later", mailbox.Inform)
	if !b.full("a", "later") {
		b.Error("the first was not waited for a week")
	}
	b.now = b.now.Add(1)
	if b.full("a", "later") {
		b.Error("and longer")
	}
	b.join("later")
	b.want("unread of who takes the id", b.unread("later"), []string{"s1", "s2", "s4"})
}

// The oldest notes go; the sequence says so.
func oldNotes(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{})
	b.join("a")
	text := strings.Repeat("x", mailbox.MaxContent)
	most := mailbox.MaxNoteBytes / mailbox.MaxContent
	if raced || testing.Short() {
		b.Skip("it takes long")
	}
	for range most + 2 {
		if _, err := b.store.AddNote(b.Context(), b.who("a"), text, b.now); err != nil {
			b.Fatal(err)
		}
	}
	notes, _, err := b.store.Notes(b.Context(), 0, 1)
	if err != nil || len(notes) != 1 || notes[0].Sequence != 3 {
		b.Errorf("%d notes, %v", len(notes), err)
	}
	last, next, err := b.store.Notes(b.Context(), int64(most)+1, 5)
	if err != nil || next != 0 || len(last) != 1 || last[0].Sequence != int64(most)+2 {
		b.Errorf("%d notes, %v", len(last), err)
	}
}

// A session has a bounded number of members. One more takes the place of who has
// been away the longest, and who has not been for long makes none.
func tooManyMembers(b *bench, open func(mailbox.Retention)) {
	open(mailbox.Retention{Count: 3, Bytes: -1, Age: -1})
	if raced || testing.Short() {
		b.Skip("it takes long")
	}
	b.join("first")
	for range 3 {
		b.send("first", "*", mailbox.Inform)
	}
	b.now = b.now.Add(time.Second)
	for i := range mailbox.MaxMembers - 1 {
		b.join(fmt.Sprint("m", i))
	}
	_, err := b.store.Register(b.Context(), mailbox.Registration{Agent: "more", Run: "run-more"}, b.now)
	if !errors.As(err, new(*mailbox.FullError)) {
		b.Errorf("one too many: %v", err)
	}
	b.join("m0") // who is one already
	b.now = b.now.Add(mailbox.AwayAfter)
	b.join("more")
	agents, err := b.store.Agents(b.Context())
	if err != nil || len(agents) != mailbox.MaxMembers || slices.ContainsFunc(agents, func(a mailbox.Agent) bool { return a.ID == "first" }) {
		b.Errorf("%d members, %v", len(agents), err)
	}
	b.now = b.now.Add(time.Second) // and the others are away, too
	b.join("first")
	if !b.full("first", "*") {
		b.Error("what it had sent is forgotten")
	}
}
