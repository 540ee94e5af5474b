package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/pageserver"
)

// tab is a page in a browser, as the daemon sees it.
type tab struct {
	t  *testing.T
	ws *websocket.Conn
	id int64
	// raw is everything that came.
	raw strings.Builder
}

// tabMessage is a message to it.
type tabMessage struct {
	ID     int64             `json:"id"`
	Result json.RawMessage   `json:"result"`
	Error  *pageserver.Error `json:"error"`
	Topic  string            `json:"topic"`
	Action string            `json:"action"`
	Data   json.RawMessage   `json:"data"`
}

// tabPatience bounds the wait for what must come, on a machine that is busy.
const tabPatience = 30 * time.Second

func (s *served) tab() *tab {
	s.t.Helper()
	status, body := s.ask(http.MethodPost, "/v1/live/tickets", "")
	var ticket struct{ Ticket string }
	if err := json.Unmarshal([]byte(body), &ticket); err != nil || status != http.StatusOK {
		s.t.Fatalf("ticket: %d %s", status, body)
	}
	ws, _, err := websocket.Dial(s.t.Context(), s.url+"/v1/live?ticket="+ticket.Ticket, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		Subprotocols: []string{pageserver.Subprotocol}, HTTPClient: apiClient, HTTPHeader: http.Header{"Origin": {s.url}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ws.SetReadLimit(16 << 20)
	s.t.Cleanup(func() { _ = ws.CloseNow() })
	return &tab{t: s.t, ws: ws}
}

func (b *tab) send(action string, params map[string]any) int64 {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "action": action}
	maps.Copy(m, params)
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.ws.Write(b.t.Context(), websocket.MessageText, text); err != nil {
		b.t.Fatal(err)
	}
	return b.id
}

func (b *tab) read() tabMessage {
	b.t.Helper()
	m, code := b.next()
	if code != 0 {
		b.t.Fatalf("closed with %d", code)
	}
	return m
}

// next is the next message, or the code of the close; -1 is none.
func (b *tab) next() (m tabMessage, code websocket.StatusCode) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), tabPatience)
	defer cancel()
	_, text, err := b.ws.Read(ctx)
	if ctx.Err() != nil {
		said := b.raw.String()
		b.t.Fatalf("nothing came; at last: %s", said[max(0, len(said)-2000):])
	}
	if err != nil {
		if closed, ok := errors.AsType[websocket.CloseError](err); ok {
			return m, closed.Code
		}
		return m, -1
	}
	b.raw.Write(append(text, '\n'))
	if err := json.Unmarshal(text, &m); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return m, 0
}

// ask sends a request and returns its answer; what is pushed before is passed to
// took, which may be nil.
func (b *tab) ask(action string, params map[string]any, took func(tabMessage)) tabMessage {
	b.t.Helper()
	id := b.send(action, params)
	for {
		m := b.read()
		if m.ID == id {
			return m
		}
		if took != nil {
			took(m)
		}
	}
}

func (b *tab) subscribe(topic string) tabMessage {
	b.t.Helper()
	return b.ask("subscribe", map[string]any{"topic": topic}, nil)
}

// until reads until a message satisfies want.
func (b *tab) until(want func(tabMessage) bool) tabMessage {
	b.t.Helper()
	for {
		if m := b.read(); want(m) {
			return m
		}
	}
}

// view is a session as a page renders it, by the rules of the contract.
type view struct {
	t       *testing.T
	session SessionInfo
	entries []agent.Entry
	run     string
	text    string
	thought string
	tools   map[string]string // status by id
	history json.RawMessage
	events  []string
	heard   string // all text that came, or was there
}

func (v *view) begin(result json.RawMessage) {
	v.t.Helper()
	var s struct {
		Session SessionInfo
		History json.RawMessage
		Entries []agent.Entry
		First   bool
		Live    agent.Live
	}
	if err := json.Unmarshal(result, &s); err != nil {
		v.t.Fatal(err)
	}
	*v = view{t: v.t, session: s.Session, entries: s.Entries, run: s.Live.Run, text: s.Live.Text, thought: s.Live.Thought, tools: map[string]string{}, history: s.History}
	for _, tool := range s.Live.Tools {
		v.tools[tool.ID] = tool.Status
	}
	for _, e := range s.Entries {
		if e.Kind == agent.EntryAssistant {
			v.heard += e.Text
		}
	}
	v.heard += s.Live.Text
	v.whole()
}

// whole checks that no entry is missing or there twice.
func (v *view) whole() {
	v.t.Helper()
	for i := 1; i < len(v.entries); i++ {
		if v.entries[i].Seq != v.entries[i-1].Seq+1 {
			v.t.Fatalf("entry %d follows %d", v.entries[i].Seq, v.entries[i-1].Seq)
		}
	}
}

func (v *view) take(m tabMessage) {
	v.t.Helper()
	var d struct {
		agent.Update

		Session SessionInfo
		Entries []agent.Entry
		Live    *liveText
		History json.RawMessage
	}
	switch m.Action {
	case "session.update":
		if err := json.Unmarshal(m.Data, &d.Update); err != nil {
			v.t.Fatal(err)
		}
		v.update(&d.Update)
		return
	case "session.changed":
		var c struct{ Session SessionInfo }
		if err := json.Unmarshal(m.Data, &c); err != nil {
			v.t.Fatal(err)
		}
		v.session = c.Session
		return
	case "session.entries":
		var e struct {
			Entries []agent.Entry
			Live    *liveText
		}
		if err := json.Unmarshal(m.Data, &e); err != nil {
			v.t.Fatal(err)
		}
		v.entries = append(v.entries, e.Entries...)
		for _, entry := range e.Entries {
			v.events = append(v.events, "entry "+string(entry.Kind))
			if entry.Kind == agent.EntryAssistant {
				if e.Live == nil {
					v.t.Fatalf("no live text beside %+v", entry)
				}
				rest, ok := strings.CutPrefix(v.text, entry.Text)
				if !ok {
					v.t.Fatalf("the entry %q is not what was said: %q", entry.Text, v.text)
				}
				v.text = rest
			}
		}
		if e.Live != nil && e.Live.Text != v.text {
			v.t.Fatalf("the live text is %q, and ours %q", e.Live.Text, v.text)
		}
		v.whole()
	case "session.mcp_status_updated":
		v.history = m.Data
	}
}

func (v *view) update(u *agent.Update) {
	v.events = append(v.events, u.Event)
	switch u.Event {
	case agent.EventRunStarted:
		v.run = u.Run
	case agent.EventRunEnded:
		v.run, v.thought = "", ""
		if v.text != "" {
			v.t.Fatalf("the run has ended, and %q was said in it and is no entry", v.text)
		}
	case agent.EventText:
		v.text += u.Text
		v.heard += u.Text
	case agent.EventThought:
		v.thought += u.Text
	case agent.EventTool:
		v.tools[u.ID] = u.Status
	}
}

// A page that subscribes sees what is there, then what is said while it is said,
// and the transcript; one that is loaded in the middle of a message has lost
// nothing, and nothing is there twice.
func TestPageSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := rememberingAgents(t, dir)
	s := serve(t, a, dir, "")
	const pieces = 120
	halfway, goOn := make(chan struct{}), make(chan struct{})
	var want strings.Builder
	calls := 1
	talk := func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Emit(agent.Thought{Text: "hm"})
		for i := range pieces {
			if i == pieces/2 {
				turn.Emit(agent.ToolCall{ID: "open", Title: "look", Status: agent.ToolRunning})
				close(halfway)
				<-goOn
			}
			if i%20 == 10 {
				calls++
				turn.Emit(agent.ToolCall{ID: fmt.Sprint("t", i), Title: "look", Status: agent.ToolCompleted})
			}
			text := fmt.Sprintf("w%d ", i)
			want.WriteString(text)
			turn.Emit(agent.Text{Text: text})
			turn.Wait(time.Millisecond)
		}
		return agenttest.End()
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(talk, agenttest.Say("again")).New}); err != nil {
		t.Fatal(err)
	}
	first := &view{t: t}
	page := s.tab()
	first.begin(page.subscribe("session:a").Result)
	if first.session.State != "idle" || len(first.entries) != 0 || string(first.history) != "null" {
		t.Errorf("at first: %+v, history %s", first, first.history)
	}
	began := time.Now()
	if status, body := s.ask(http.MethodPost, "/v1/sessions/a/prompt", `{"text":"go"}`); status != http.StatusOK {
		t.Fatal(body)
	}
	<-halfway
	second := &view{t: t}
	other := s.tab() // a reload in the middle of a message
	second.begin(other.subscribe("session:a").Result)
	if second.run == "" || second.thought != "hm" || second.tools["open"] != "in_progress" || !strings.HasSuffix(second.heard, fmt.Sprintf("w%d ", pieces/2-1)) {
		t.Errorf("after the reload: %+v", second)
	}
	close(goOn)
	over := func(m tabMessage, v *view) bool {
		v.take(m)
		return len(v.events) > 0 && v.events[len(v.events)-1] == agent.EventRunEnded
	}
	page.until(func(m tabMessage) bool { return over(m, first) })
	took := time.Since(began)
	other.until(func(m tabMessage) bool { return over(m, second) })
	for name, v := range map[string]*view{"the first": first, "the second": second} {
		if strings.TrimSpace(v.heard) != strings.TrimSpace(want.String()) {
			t.Errorf("%s page has heard %q", name, v.heard)
		}
		if v.tools["open"] != "in_progress" && v.tools["open"] != "completed" {
			t.Errorf("%s page: tools %v", name, v.tools)
		}
		for v.session.State != "idle" {
			if name == "the first" {
				v.take(page.read())
			} else {
				v.take(other.read())
			}
		}
	}
	_, transcript := s.ask(http.MethodGet, "/v1/sessions/a/transcript", "")
	var stored []agent.Entry
	for line := range strings.Lines(transcript) {
		var e agent.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, e)
	}
	if d := cmp.Diff(stored, first.entries); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(stored[len(stored)-len(second.entries):], second.entries); d != "" {
		t.Error(d)
	}
	// One in each window, and those that a call and its entries, a page that comes, or
	// the end cut short.
	if n := strings.Count(page.raw.String(), `"event":"text"`); n > int(took/textWindow)+3*calls+3 {
		t.Errorf("%d pieces of text came as %d updates in %v", pieces, n, took)
	}
}

// However a page comes in the middle of what is said, and however messages begin and
// end meanwhile, it has every word once.
func TestPageReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := rememberingAgents(t, dir)
	s := serve(t, a, dir, "")
	const pieces, pages = 800, 16
	var want strings.Builder
	begun, seen := make(chan struct{}), make(chan struct{})
	talk := func(turn *agenttest.Turn) (agent.Outcome, error) {
		for i := range pieces {
			switch i {
			case 1:
				close(begun)
			case pieces / 2:
				<-seen // however slow the machine is, a page comes in the middle
			}
			text := agent.Text{Text: fmt.Sprintf("w%d ", i), Message: fmt.Sprint("m", i/5)}
			want.WriteString(text.Text)
			turn.Emit(text)
			if i%7 == 3 {
				turn.Emit(agent.ToolCall{ID: fmt.Sprint("t", i), Title: "look", Status: agent.ToolCompleted})
			}
			turn.Wait(time.Millisecond)
		}
		return agenttest.End()
	}
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(talk).New}); err != nil {
		t.Fatal(err)
	}
	if status, body := s.ask(http.MethodPost, "/v1/sessions/a/prompt", `{"text":"go"}`); status != http.StatusOK {
		t.Fatal(body)
	}
	<-begun
	var views []*view
	var reading sync.WaitGroup
	early := 0
	for range pages {
		page, v := s.tab(), &view{t: t}
		v.begin(page.subscribe("session:a").Result)
		views = append(views, v)
		if v.run != "" {
			early++
		}
		reading.Go(func() { // at once: who does not read answers no ping
			for v.run != "" {
				v.take(page.read())
			}
		})
		if len(views) == 1 {
			close(seen)
		}
	}
	reading.Wait()
	for _, v := range views { // its first entries may be older than those that it began with
		heard, all := strings.Fields(v.heard), strings.Fields(want.String())
		if d := cmp.Diff(all[max(0, len(all)-len(heard)):], heard); d != "" || len(heard) < len(all) && v.entries[0].Seq == 1 {
			t.Errorf("a page missed or repeated words: %s", d)
		}
	}
	if early == 0 {
		t.Error("no page came in the middle")
	}
}
