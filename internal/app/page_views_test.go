package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/worker"
)

// as is the same daemon for somebody else.
func (s *served) as(token string) *served {
	other := *s
	other.token = token
	return &other
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// feeding are Agents with a feed, and a daemon that takes tokens of its store.
func feeding(t *testing.T) (*Agents, *served, access.Store) {
	t.Helper()
	c := config.Default()
	c.Home, c.Watch.Quiet = t.TempDir(), time.Millisecond
	feed, err := OpenFeed(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = feed.Close(context.WithoutCancel(t.Context())) })
	a, err := NewAgents(t.Context(), c, &AgentsOptions{Feed: feed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgents(t, a) })
	return a, serveAll(t, a, ServeOptions{Data: c.Home, Feed: feed}), feed.Tokens
}

// A token with the right to some sessions sees these and no others, by every way:
// the list, the inbox, a topic, a route; and what is not its own cannot be told from
// what is not there.
func TestPageRights(t *testing.T) {
	t.Parallel()
	a, s, tokens := feeding(t)
	record, token, err := access.New("guest", access.Rights{Sessions: []string{"mine", "my-*"}}, time.Time{})
	if err == nil {
		err = tokens.Add(t.Context(), record)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, id := range []string{"mine", "yours-alone", "my-other"} {
		if _, err := a.Start(t.Context(), AgentSpec{ID: id, Engine: agenttest.New().New}); err != nil {
			t.Fatal(err)
		}
		r, err := a.Inbox.Post(t.Context(), notice.Notice{Agent: id, Source: notice.SourceSystem, Text: "hello " + id, Quiet: true})
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = r.ID
	}
	guest := s.as(token)
	page := guest.tab()
	list := decode[struct{ Sessions []SessionInfo }](t, page.subscribe("sessions").Result)
	var seen []string
	for _, one := range list.Sessions {
		seen = append(seen, one.Meta.ID)
	}
	slices.Sort(seen)
	if d := cmp.Diff([]string{"mine", "my-other"}, seen); d != "" {
		t.Error(d)
	}
	box := decode[inboxState](t, page.subscribe("inbox").Result)
	if len(box.Notices) != 2 || len(box.Agents) != 2 {
		t.Errorf("the inbox shows %+v", box)
	}
	for _, topic := range []string{"session:yours-alone", "session:nobody", "terminal:yours-alone", "signals:x", "sandboxes"} {
		if m := page.subscribe(topic); m.Error == nil || m.Error.Code != pageserver.CodeForbidden {
			t.Errorf("%s: %+v", topic, m)
		}
	}
	for _, path := range []string{
		"GET /v1/sessions/yours-alone/watches", "GET /v1/sessions/nobody/watches", "GET /v1/sessions/yours-alone/resources", "POST /v1/sessions/yours-alone/watches",
		"POST /v1/sessions/yours-alone/watches/dry-run", "DELETE /v1/sessions/yours-alone/watches/x", "GET /v1/inbox?agent=yours-alone", "GET /v1/inbox?agent=nobody",
		"GET /v1/collaborations", "GET /v1/collaborations/x",
	} {
		method, path, _ := strings.Cut(path, " ")
		if status, body := guest.ask(method, path, ""); status != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", method, path, status, body)
		}
	}
	hidden, hiddenBody := guest.ask(http.MethodGet, "/v1/inbox/"+ids["yours-alone"], "")
	absent, absentBody := guest.ask(http.MethodGet, "/v1/inbox/n_none", "")
	if hidden != http.StatusNotFound || absent != hidden || hiddenBody != absentBody {
		t.Errorf("a notice of another: %d %s; one that is not there: %d %s", hidden, hiddenBody, absent, absentBody)
	}
	if status, _ := guest.ask(http.MethodPost, "/v1/inbox/"+ids["yours-alone"]+"/ack", ""); status != http.StatusNotFound {
		t.Errorf("ack of another's: %d", status)
	}
	if status, body := guest.ask(http.MethodGet, "/v1/inbox", ""); status != http.StatusOK || strings.Contains(body, "hello yours-alone") || strings.Count(body, "hello") != 2 {
		t.Errorf("list: %d %s", status, body)
	}
	info := decode[pageInfo](t, []byte(second(guest.ask(http.MethodGet, "/v1/page", ""))))
	if info.Principal != (pageOwner{"guest", false}) || info.Features != (pageFeatures{Feed: true}) {
		t.Errorf("page: %+v", info)
	}
	// A ticket opens what it was made for, and nothing else.
	feedTicket := decode[struct{ Ticket string }](t, []byte(second(s.ask(http.MethodPost, "/v1/tickets", ""))))
	liveTicket := decode[struct{ Ticket string }](t, []byte(second(s.ask(http.MethodPost, "/v1/live/tickets", ""))))
	nobody := s.as("")
	for _, path := range []string{"/v1/live?ticket=" + feedTicket.Ticket, "/v1/events?topic=x&ticket=" + liveTicket.Ticket, "/v1/page?ticket=" + liveTicket.Ticket, "/v1/live"} {
		if status, body := nobody.ask(http.MethodGet, path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	// What changes in a session of another is not told either.
	if status, body := s.ask(http.MethodPost, "/v1/sessions/yours-alone/prompt", `{"text":"SECRETWORD","wait":true}`); status != http.StatusOK {
		t.Fatal(body)
	}
	if _, err := a.Inbox.Ack(t.Context(), "yours-alone", "me", ids["yours-alone"]); err != nil {
		t.Fatal(err)
	}
	if status, body := s.ask(http.MethodPost, "/v1/sessions/mine/prompt", `{"text":"hi","wait":true}`); status != http.StatusOK {
		t.Fatal(body)
	}
	if _, err := a.Inbox.Ack(t.Context(), "mine", "me", ids["mine"]); err != nil {
		t.Fatal(err)
	}
	changed, acked := false, false
	page.until(func(m tabMessage) bool {
		changed = changed || m.Action == "sessions.changed"
		acked = acked || m.Action == "inbox.notice" && strings.Contains(string(m.Data), `"state":"acked"`)
		return changed && acked
	})
	if strings.Contains(page.raw.String(), "yours-alone") || strings.Contains(page.raw.String(), "SECRETWORD") {
		t.Errorf("it has heard of another session: %s", page.raw.String())
	}
	// A token that is revoked lets nobody in, and ends what it let in; see also
	// pageserver.
	if err := tokens.Revoke(t.Context(), record.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func second[A, B any](_ A, b B) B { return b }

// The list of sessions follows what starts, works, ends and is removed.
func TestPageSessions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	page := s.tab()
	if r := page.subscribe("sessions"); string(r.Result) != `{"sessions":[]}` {
		t.Errorf("at first: %s", r.Result)
	}
	turn, goOn := make(chan struct{}), make(chan struct{})
	engine := agenttest.New(func(*agenttest.Turn) (agent.Outcome, error) {
		close(turn)
		<-goOn
		return agenttest.End()
	})
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: engine.New})
	if err != nil {
		t.Fatal(err)
	}
	state := func(want string, running bool) {
		t.Helper()
		page.until(func(m tabMessage) bool {
			if m.Action != "sessions.changed" {
				t.Errorf("before %s: %s", want, m.Action)
			}
			c := decode[struct{ Session SessionInfo }](t, m.Data)
			return c.Session.Meta.ID == "a" && c.Session.State == want && c.Session.Running == running
		})
	}
	state("idle", true)
	if _, err := one.Session.Submit(agent.Input{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	<-turn
	state("running", true)
	close(goOn)
	state("idle", true)
	if status, body := s.ask(http.MethodPost, "/v1/sessions/a/stop", ""); status != http.StatusOK {
		t.Fatal(body)
	}
	state("stopped", false)
	if status, body := s.ask(http.MethodDelete, "/v1/sessions/a", ""); status != http.StatusOK {
		t.Fatal(body)
	}
	if m := page.until(func(m tabMessage) bool { return m.Action != "sessions.changed" }); m.Action != "sessions.removed" || string(m.Data) != `{"id":"a"}` {
		t.Errorf("removed: %+v", m)
	}
}

// The inbox follows a notice from its arrival to the acknowledgement, whoever
// causes it.
func TestPageInbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	page := s.tab()
	first := decode[inboxState](t, page.subscribe("inbox").Result)
	if first.Notices == nil || first.Agents == nil || len(first.Notices) != 0 {
		t.Errorf("at first: %+v", first)
	}
	if err := a.Inbox.Register(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	receipt, err := a.Inbox.Post(t.Context(), notice.Notice{Agent: "a", Source: notice.SourceWatch, Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	record := func(want notice.State) notice.Record {
		t.Helper()
		var found notice.Record
		page.until(func(m tabMessage) bool {
			if m.Action != "inbox.notice" {
				return false
			}
			found = decode[struct{ Notice notice.Record }](t, m.Data).Notice
			return found.ID == receipt.ID && found.State == want
		})
		return found
	}
	record(notice.Persisted)
	page.until(func(m tabMessage) bool {
		return m.Action == "inbox.agent" && decode[struct{ Status notice.Status }](t, m.Data).Status.Pending == 1
	})
	if status, body := s.ask(http.MethodGet, "/v1/inbox?agent=a&state=persisted,seen&source=watch&limit=10", ""); status != http.StatusOK || !strings.Contains(body, receipt.ID) {
		t.Errorf("list: %d %s", status, body)
	}
	for _, bad := range []string{"state=x", "limit=0", "limit=9999", "limit=x"} {
		if status, _ := s.ask(http.MethodGet, "/v1/inbox?"+bad, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, status)
		}
	}
	for i, want := range []string{`{"acked":true}`, `{"acked":false}`} {
		if _, body := s.ask(http.MethodPost, "/v1/inbox/"+receipt.ID+"/ack", ""); strings.TrimSpace(body) != want {
			t.Errorf("ack %d: %s", i, body)
		}
	}
	if r := record(notice.Acked); len(r.Steps) != 1 && len(r.Steps) != 2 {
		t.Errorf("steps %+v", r.Steps)
	}
	if _, body := s.ask(http.MethodGet, "/v1/inbox/"+receipt.ID, ""); !strings.Contains(body, `"adapter":"page local"`) {
		t.Errorf("show: %s", body)
	}
	if err := a.Inbox.Unregister(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	page.until(func(m tabMessage) bool { return m.Action == "inbox.agent_removed" })
}

// Watches are tried, started, listed and stopped; the page of the session follows.
func TestPageWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	b := newBoard(t)
	b.set(t, "todo", "tea")
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New().New, Servers: b.specs}); err != nil {
		t.Fatal(err)
	}
	page := s.tab()
	page.subscribe("session:a")
	if _, body := s.ask(http.MethodGet, "/v1/sessions/a/resources", ""); !strings.Contains(body, `{"name":"memo","state":"ready","resources":[{"uri":"memo://notes"`) {
		t.Errorf("resources: %s", body)
	}
	tried := decode[watch.Tryout](t, []byte(second(s.ask(http.MethodPost, "/v1/sessions/a/watches/dry-run", `{"uri":"memo://notes"}`))))
	if last := len(tried.Lines) - 1; !tried.OK || last != 3 || !tried.Lines[last].Now || *tried.Lines[last].Line != "ADDED todo" {
		t.Errorf("tried: %+v", tried)
	}
	if _, body := s.ask(http.MethodPost, "/v1/sessions/a/watches/dry-run", `{"uri":"nothing"}`); !strings.Contains(body, `"ok":false,"problem":`) {
		t.Errorf("tried: %s", body)
	}
	if status, body := s.ask(http.MethodPost, "/v1/sessions/a/watches", `{"name":"n","uri":"memo://notes"}`); status != http.StatusOK || !strings.Contains(body, `"name":"n"`) {
		t.Fatalf("start: %d %s", status, body)
	}
	overview := s.tab()
	counted := func(want int) func(tabMessage) bool {
		return func(m tabMessage) bool {
			c := decode[struct{ Session SessionInfo }](t, m.Data).Session
			return m.Action == "sessions.changed" && c.Meta.ID == "a" && c.Watching == want
		}
	}
	if l := decode[struct{ Sessions []SessionInfo }](t, overview.subscribe("sessions").Result); len(l.Sessions) != 1 || l.Sessions[0].Watching != 1 {
		t.Errorf("the list counts %+v", l)
	}
	watches := func(m tabMessage, want int, events bool) bool {
		if m.Action != "session.watches" {
			return false
		}
		list := decode[struct{ Watches []watch.Status }](t, m.Data).Watches
		return list != nil && len(list) == want && (!events || list[0].Events > 0)
	}
	page.until(func(m tabMessage) bool { return watches(m, 1, false) })
	b.set(t, "todo", "coffee")
	counts, seen := false, false // in whichever order
	page.until(func(m tabMessage) bool {
		counts = counts || watches(m, 1, true)
		seen = seen || m.Action == "session.inbox" && decode[struct{ Inbox notice.Status }](t, m.Data).Inbox.Counts[notice.Seen] == 1
		return counts && seen
	})
	for i, want := range []int{http.StatusOK, http.StatusNotFound} {
		if status, body := s.ask(http.MethodDelete, "/v1/sessions/a/watches/n", ""); status != want {
			t.Errorf("stop %d: %d %s", i, status, body)
		}
	}
	page.until(func(m tabMessage) bool { return watches(m, 0, false) })
	overview.until(counted(0))
	if status, body := s.ask(http.MethodPost, "/v1/sessions/a/watches", `{"name":"again","uri":"memo://notes"}`); status != http.StatusOK {
		t.Fatalf("start again: %d %s", status, body)
	}
	overview.until(counted(1))
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "watches", `{"name":"","uri":"memo://notes"}`, http.StatusBadRequest},
		{http.MethodPost, "watches", `{"name":"n","uri":"memo://notes","more":1}`, http.StatusBadRequest},
		{http.MethodPost, "watches/dry-run", `{"name":"n"}`, http.StatusBadRequest},
	} {
		if status, body := s.ask(c.method, "/v1/sessions/a/"+c.path, c.body); status != c.status {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
	}
	if status, _ := s.ask(http.MethodGet, "/v1/sessions/nobody/watches", ""); status != http.StatusNotFound {
		t.Errorf("nobody: %d", status)
	}
}

// A collaboration session on the page: what is there, then every signal, member and
// value of the whiteboard.
func TestPageSignals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	const id = "20261130_010203_00c0ffee"
	page := s.tab()
	if m := page.subscribe("signals:" + id); m.Error == nil || m.Error.Code != pageserver.CodeNotFound {
		t.Errorf("none: %+v", m)
	}
	if _, body := s.ask(http.MethodGet, "/v1/collaborations", ""); strings.TrimSpace(body) != `{"collaborations":[]}` {
		t.Errorf("none: %s", body)
	}
	x, err := a.signals.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close(context.WithoutCancel(t.Context())) })
	one, leave, err := x.Join(t.Context(), mailbox.Registration{Agent: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Send(t.Context(), mailbox.Draft{To: "two", Content: "before"}); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Write(t.Context(), "key", "before"); err != nil {
		t.Fatal(err)
	}
	state := decode[collaborationState](t, page.subscribe("signals:"+id).Result)
	if len(state.Agents) != 1 || len(state.Signals) != 1 || len(state.Whiteboard) != 1 || state.Signals[0].Content != "before" {
		t.Errorf("at first: %+v", state)
	}
	if _, body := s.ask(http.MethodGet, "/v1/collaborations", ""); strings.TrimSpace(body) != `{"collaborations":[{"id":"`+id+`","agents":1}]}` {
		t.Errorf("list: %s", body)
	}
	shown := decode[collaborationState](t, []byte(second(s.ask(http.MethodGet, "/v1/collaborations/"+id, ""))))
	if len(shown.Signals) != 1 {
		t.Errorf("show: %+v", shown)
	}
	for i := range 5 {
		if _, err := one.Send(t.Context(), mailbox.Draft{To: "two", Content: fmt.Sprint("signal ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.Write(t.Context(), "key", "after"); err != nil {
		t.Fatal(err)
	}
	leave(t.Context())
	var signals, notes, left []string
	page.until(func(m tabMessage) bool {
		switch m.Action {
		case "signals.signal":
			signals = append(signals, decode[struct{ Signal mailbox.Signal }](t, m.Data).Signal.Content)
		case "signals.note":
			notes = append(notes, decode[struct{ Entry mailbox.Entry }](t, m.Data).Entry.Value)
		case "signals.agents":
			left = append(left, string(decode[struct{ Agents []mailbox.Agent }](t, m.Data).Agents[0].Status))
		}
		return len(signals) == 5 && len(notes) > 0 && slices.Contains(left, "sleeping")
	})
	if d := cmp.Diff([]string{"signal 0", "signal 1", "signal 2", "signal 3", "signal 4"}, signals); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"after"}, notes); d != "" {
		t.Error(d)
	}
	if m := page.ask("unsubscribe", map[string]any{"topic": "signals:" + id}, nil); m.Error != nil {
		t.Errorf("%+v", m)
	}
}

// A terminal on the page: its output from any byte on, what is typed, its size, and
// its end.
func TestPageTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	one := start(t, a, cli(t, "some-agent", reads))
	if _, err := a.Start(t.Context(), AgentSpec{ID: "plain", Engine: agenttest.New().New}); err != nil {
		t.Fatal(err)
	}
	page := s.tab()
	for topic, want := range map[string]pageserver.Code{"terminal:plain": pageserver.CodeUnavailable, "terminal:nobody": pageserver.CodeNotFound} {
		if m := page.subscribe(topic); m.Error == nil || m.Error.Code != want {
			t.Errorf("%s: %+v", topic, m)
		}
	}
	state := decode[terminalState](t, page.subscribe("terminal:a").Result)
	if state.Offset != 0 || state.Lost != 0 || state.Cols == 0 {
		t.Errorf("at first: %+v", state)
	}
	screen, next := "", int64(0)
	take := func(m tabMessage) {
		t.Helper()
		if m.Action != "terminal.output" {
			return
		}
		out := decode[terminalOutput](t, m.Data)
		if out.Offset != next {
			t.Fatalf("output at %d, want %d", out.Offset, next)
		}
		next += int64(len(out.Data))
		screen += string(out.Data)
	}
	shows := func(p *tab, words string) {
		t.Helper()
		p.until(func(m tabMessage) bool {
			take(m)
			return strings.Contains(screen, words)
		})
	}
	shows(page, "ready")
	if m := page.ask("terminal.resize", map[string]any{"session_id": "a", "cols": 100, "rows": 30}, take); m.Error != nil {
		t.Errorf("resize: %+v", m)
	}
	for _, word := range []string{"one", "two\r"} {
		page.send("terminal.input", map[string]any{"session_id": "a", "data": []byte(word)})
	}
	shows(page, "heard: onetwo")
	other := s.tab() // a reload goes on where it was
	r := other.ask("subscribe", map[string]any{"topic": "terminal:a", "after": 3}, nil)
	if st := decode[terminalState](t, r.Result); st.Offset != 3 || st.Cols != 100 || st.Rows != 30 || !st.Running {
		t.Errorf("reload: %+v", st)
	}
	whole := screen
	screen, next = whole[:3], 3
	shows(other, "heard: onetwo")
	if !strings.HasPrefix(screen, whole) {
		t.Errorf("the reload shows %q, and before it was %q", screen, whole)
	}
	if m := page.ask("terminal.input", map[string]any{"session_id": "a", "data": make([]byte, maxTyped+1)}, nil); m.Error == nil || m.Error.Code != pageserver.CodeBadRequest {
		t.Errorf("too much: %+v", m)
	}
	if m := page.ask("terminal.input", map[string]any{"session_id": "plain", "data": []byte("x")}, nil); m.Error == nil || m.Error.Code != pageserver.CodeUnavailable {
		t.Errorf("no terminal: %+v", m)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	page.until(func(m tabMessage) bool { return m.Action == "terminal.exit" })
	if m := page.ask("terminal.input", map[string]any{"session_id": "a", "data": []byte("x")}, nil); m.Error == nil || m.Error.Code != pageserver.CodeUnavailable {
		t.Errorf("after the end: %+v", m)
	}
}

// A session that is started again, and a daemon that is: whoever looks begins again
// with everything that was there.
func TestPageRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(agenttest.Say("first")).New})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := say(t, one, "hi"); err != nil {
		t.Fatal(err)
	}
	page := s.tab()
	before := &view{t: t}
	before.begin(page.subscribe("session:a").Result)
	if before.heard != "first" || !before.session.Running {
		t.Errorf("before: %+v", before)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for before.session.Running {
		before.take(page.read())
	}
	if one, err = a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(agenttest.Say("second")).New}); err != nil {
		t.Fatal(err)
	}
	page.until(func(m tabMessage) bool { return m.Action == "gap" && m.Topic == "session:a" })
	again := &view{t: t}
	again.begin(page.subscribe("session:a").Result)
	if !again.session.Running || len(again.entries) < len(before.entries) {
		t.Errorf("again: %+v", again)
	}
	if _, err := say(t, one, "hi"); err != nil {
		t.Fatal(err)
	}
	for !strings.HasSuffix(again.heard, "second") || again.text != "" {
		again.take(page.read())
	}
	s.stop()
	for code := websocket.StatusCode(0); code != websocket.StatusGoingAway; {
		if _, code = page.next(); code != 0 && code != websocket.StatusGoingAway {
			t.Fatalf("closed with %d", code)
		}
	}
	err = <-s.ended
	s.ended <- err
	later := serve(t, a, dir, "")
	last := &view{t: t}
	last.begin(later.tab().subscribe("session:a").Result)
	if last.heard != "firstsecond" {
		t.Errorf("after the restart: %q", last.heard)
	}
}

// Sandboxes on the page, from their start to how they end.
func TestPageSandboxes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	g, _ := testSandboxes(t, dir, nil)
	s := serveWith(t, a, dir, g)
	fleettest.Start(t, g, "before", "slow")
	page := s.tab()
	list := decode[struct{ Sandboxes []fleet.Info }](t, page.subscribe("sandboxes").Result)
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].ID != "before" || list.Sandboxes[0].State != worker.StateRunning {
		t.Errorf("at first: %+v", list)
	}
	if info := decode[pageInfo](t, []byte(second(s.ask(http.MethodGet, "/v1/page", "")))); !info.Features.Sandboxes || !slices.Contains(info.Sandboxes, pageSandbox{Name: "slow", Driver: config.DriverLocal}) {
		t.Errorf("features %+v, kinds of sandboxes %+v", info.Features, info.Sandboxes)
	}
	state := func(id string, want worker.State) {
		t.Helper()
		page.until(func(m tabMessage) bool {
			c := decode[struct{ Sandbox fleet.Info }](t, m.Data).Sandbox
			return m.Action == "sandboxes.changed" && c.ID == id && c.State == want
		})
	}
	one := fleettest.Start(t, g, "one", "slow")
	state("one", worker.StateRunning)
	if _, err := one.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	state("one", worker.StateReleased)
	if m := page.ask("unsubscribe", map[string]any{"topic": "sandboxes"}, nil); m.Error != nil {
		t.Errorf("%+v", m)
	}
	if list = decode[struct{ Sandboxes []fleet.Info }](t, page.subscribe("sandboxes").Result); len(list.Sandboxes) != 1 {
		t.Errorf("again: %+v", list)
	}
	none := serve(t, testAgents(t, t.TempDir()), t.TempDir(), "")
	if m := none.tab().subscribe("sandboxes"); m.Error == nil || m.Error.Code != pageserver.CodeUnavailable {
		t.Errorf("without a gateway: %+v", m)
	}
}

// Diagnostics go to the session that they name, and are of this process.
//
//
func TestPageDiagnostics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	b := newBoard(t)
	one := start(t, a, func() AgentSpec { spec := mockSpec(t, "a", "eager"); spec.Servers = b.specs; return spec }())
	page := s.tab()
	first := &view{t: t}
	first.begin(page.subscribe("session:a").Result)
	test := func(session, server string) tabMessage {
		return page.ask(pageserver.ActionTestEndpoint, map[string]any{"session_id": session, "server_name": server}, first.take)
	}
	if _, err := say(t, one, "hi"); err != nil {
		t.Fatal(err)
	}
	for first.history == nil || !strings.Contains(string(first.history), `"status":"active"`) {
		first.take(page.read())
	}
	if m := test("a", "memo"); m.Error != nil || !strings.Contains(string(m.Result), `"succeeded":true`) || !strings.Contains(string(m.Result), `"tested_at"`) {
		t.Errorf("test: %s %+v", m.Result, m.Error)
	}
	for name, want := range map[[2]string]pageserver.Code{{"a", "none"}: pageserver.CodeNotFound, {"nobody", "memo"}: pageserver.CodeNotFound} {
		if m := test(name[0], name[1]); m.Error == nil || m.Error.Code != want {
			t.Errorf("%v: %+v", name, m)
		}
	}
	if m := page.ask(pageserver.ActionRecentOutput, map[string]any{"session_id": "a"}, nil); m.Error != nil || !strings.HasPrefix(string(m.Result), `{"live":true,"lines":[`) {
		t.Errorf("output: %s %+v", m.Result, m.Error)
	}
	// Whoever comes later has the report without waiting for anything to happen.
	second := &view{t: t}
	second.begin(s.tab().subscribe("session:a").Result)
	if !strings.Contains(string(second.history), `"schema_version":1`) || !strings.Contains(string(second.history), `"endpoint_test"`) {
		t.Errorf("history: %s", second.history)
	}
}

// logged keeps a log.
type logged struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Nothing that a configuration keeps for itself, and nothing of an agent's standard
// error that nobody has asked for, is sent to a page.
func TestPageTellsNoSecrets(t *testing.T) {
	t.Parallel()
	const canary = "CANARY5ecret"
	dir := t.TempDir()
	c := config.Default()
	c.Home = dir
	c.Profiles = map[string]config.Profile{"p": {Profile: agent.Profile{
		Name: "p", Command: []string{filepath.Join("/opt", "agent"), "--key=" + canary}, Env: []string{"KEY=" + canary},
		Servers: []byte(`{"mcpServers":{"s":{"command":"x","args":["` + canary + `"],"env":{"K":"` + canary + `"}},"h":{"url":"http://127.0.0.1:1/` + canary + `?k=` + canary + `","headers":{"X":"` + canary + `"}}}}`),
	}}}
	var log logged
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := NewAgents(t.Context(), c, &AgentsOptions{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAgents(t, a) })
	s := serveAll(t, a, ServeOptions{Data: dir, Logger: logger})
	spec := mockSpec(t, "a", "eager")
	spec.Profile.Env = append(spec.Profile.Env, "KEY="+canary)
	if spec.Servers, err = profileServers(c.Profiles["p"].Servers); err != nil {
		t.Fatal(err)
	}
	one := start(t, a, spec)
	page := s.tab()
	for _, topic := range []string{"sessions", "inbox", "session:a"} {
		if m := page.subscribe(topic); m.Error != nil {
			t.Fatalf("%s: %+v", topic, m.Error)
		}
	}
	if _, err := say(t, one, "hi"); err != nil {
		t.Fatal(err)
	}
	page.ask(pageserver.ActionTestEndpoint, map[string]any{"session_id": "a", "server_name": "h"}, nil)
	page.ask(pageserver.ActionTestEndpoint, map[string]any{"session_id": "a", "server_name": "s"}, nil)
	if m := page.subscribe("session:a"); m.Error == nil { // it is subscribed to
		t.Errorf("%+v", m)
	}
	for _, action := range []string{"sessions.changed", "session.changed", "session.mcp_status_updated", "session.entries"} {
		for !strings.Contains(page.raw.String(), `"action":"`+action+`"`) {
			page.read()
		}
	}
	page.raw.WriteString("\n")
	for _, path := range []string{"/v1/page", "/v1/sessions", "/v1/sessions/a", "/v1/sessions/a/watches", "/v1/sessions/a/attachments", "/v1/inbox", "/v1/inbox/agents"} {
		status, body := s.ask(http.MethodGet, path, "")
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		page.raw.WriteString(body)
	}
	said := page.raw.String()
	for _, secret := range []string{canary, s.token, "ossicle_live_"} {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, secret) {
				t.Errorf("%s was logged: %s", secret, line)
			}
		}
	}
	if i := strings.Index(said, canary); i >= 0 {
		t.Errorf("a secret was sent: …%s…", said[max(0, i-200):min(len(said), i+50)])
	}
	if !strings.Contains(said, `"profiles":[{"name":"p","engine":"acp","agent":"agent","servers":["s","h"]}]`) {
		t.Errorf("the profile is not shown: %v", slices.Sorted(maps.Keys(c.Profiles)))
	}
}
