package app

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// rememberingAgents keep transcripts in memory: what a disk is too slow for is missing
// in them, and is not what is asked here.
func rememberingAgents(t *testing.T, dir string) *Agents {
	t.Helper()
	a := testAgents(t, dir)
	a.Store = agent.NewMemoryStore(0, 0)
	return a
}

// trouble is what the API tells of a session, by itself and in the list.
func (s *served) trouble(id string) *agent.Trouble {
	s.t.Helper()
	one := decode[SessionInfo](s.t, []byte(second(s.ask(http.MethodGet, "/v1/sessions/"+id, "")))).Trouble
	for _, info := range decode[struct{ Sessions []SessionInfo }](s.t, []byte(second(s.ask(http.MethodGet, "/v1/sessions", "")))).Sessions {
		if info.Meta.ID == id && ((info.Trouble == nil) != (one == nil) || one != nil && *info.Trouble != *one) {
			s.t.Errorf("%s: %+v in the list, %+v by itself", id, info.Trouble, one)
		}
	}
	return one
}

func (s *served) troubled(id string, kind agent.TroubleKind, part string) {
	s.t.Helper()
	got := s.trouble(id)
	if kind == "" && got != nil || kind != "" && (got == nil || got.Kind != kind || !strings.Contains(got.Text, part)) {
		s.t.Errorf("%s: %+v, want %s, %q", id, got, kind, part)
	}
}

// A session whose agent is not there says so in the answer of its start.
func TestMissingAgentIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, rememberingAgents(t, dir), dir, "")
	code, body := s.ask(http.MethodPost, "/v1/sessions", `{"id":"a","agent":["/nosuch/agent","--key","hunter2"],"dir":"`+dir+`"}`)
	info := decode[SessionInfo](t, []byte(body))
	if code != http.StatusOK || info.Trouble == nil || info.Trouble.Kind != agent.TroubleUnavailable {
		t.Fatalf("%d %s", code, body)
	}
	if text := info.Trouble.Text; !strings.HasPrefix(text, "The agent could not be started: start …agent: no such file or directory. ") {
		t.Errorf("%q", text)
	}
	code, body = s.ask(http.MethodPost, "/v1/sessions/a/prompt", `{"text":"hello","wait":true}`)
	if want := "start agent: start /nosuch/agent: no such file or directory"; code != http.StatusUnprocessableEntity || !strings.Contains(body, `"`+want+`"`) {
		t.Errorf("%d %s", code, body)
	}
	s.troubled("a", agent.TroubleUnavailable, "no such file")
	// What one that is there said is told to whoever has asked, once and clean.
	code, body = s.ask(http.MethodPost, "/v1/sessions", `{"id":"b","agent":["sh","-c","printf 'no \\033[31mkey\\033[0m\\n' >&2; exit 3"],"dir":"`+dir+`"}`)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	code, body = s.ask(http.MethodPost, "/v1/sessions/b/prompt", `{"text":"hello","wait":true}`)
	p := decode[httpserver.Problem](t, []byte(body))
	if code != http.StatusUnprocessableEntity || p.Detail != "start agent: run agent: it exited: exit status 3" || !slices.Equal(p.Output, []string{"no key"}) {
		t.Errorf("%d %s", code, body)
	}
	// What does not run has no agent that could be missing, but a turn that failed.
	if code, body := s.ask(http.MethodPost, "/v1/sessions/a/stop", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	s.troubled("a", agent.TroubleFailed, "The last turn failed: the agent could not be started. ")
}

// A turn that failed, or an agent that died, is told by the API and to the page, in
// the list and of the session, until a turn completes; without what is secret.
func TestTroubleIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := rememberingAgents(t, dir)
	s := serve(t, a, dir, "")
	fake := agenttest.New(agenttest.Fail(errors.New("the model refuses key hunter2hunter2")), agenttest.Die(""), agenttest.Say("ok"))
	spec := AgentSpec{ID: "a", Engine: fake.New}
	spec.Profile.Env = []string{"KEY=hunter2hunter2"}
	one := start(t, a, spec)
	page := s.tab()
	page.subscribe("sessions")
	page.subscribe("session:a")
	told := func(kind agent.TroubleKind) {
		t.Helper()
		want := map[string]bool{"sessions.changed": true, "session.changed": true}
		page.until(func(m tabMessage) bool {
			if want[m.Action] {
				got := decode[struct{ Session SessionInfo }](t, m.Data).Session
				if got.State == "idle" && (kind == "" && got.Trouble == nil || got.Trouble != nil && got.Trouble.Kind == kind) {
					delete(want, m.Action)
				}
			}
			return len(want) == 0
		})
	}
	if _, err := say(t, one, "one"); err == nil {
		t.Error("it did not fail")
	}
	s.troubled("a", agent.TroubleFailed, "the model refuses key [redacted]. ")
	told(agent.TroubleFailed)
	if _, err := say(t, one, "two"); err == nil {
		t.Error("it did not die")
	}
	s.troubled("a", agent.TroubleExited, "Your next message starts it again.")
	told(agent.TroubleExited)
	mustSay(t, one, "three")
	s.troubled("a", "", "")
	told("")
}

// A turn that the death of a daemon cut off is told while the session is stopped, when
// it has been started again, and until a turn completes.
func TestCutOffTurnIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := rememberingAgents(t, dir)
	s := serve(t, a, dir, "")
	fake := agenttest.New(agenttest.Say("ok"), agenttest.Say("ok"))
	mustSay(t, start(t, a, AgentSpec{ID: "a", Engine: fake.New}), "one")
	if err := a.Agent("a").Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.troubled("a", "", "")
	began := time.Now().UTC().Truncate(time.Millisecond)
	died := []agent.Entry{{Time: began, Kind: agent.EntryRunStart, Run: "run-of-the-dead", Inputs: []string{"in-1"}}}
	for range 600 {
		died = append(died, agent.Entry{Time: began, Kind: agent.EntryTool, Run: "run-of-the-dead"})
	}
	if err := a.Store.Append(t.Context(), "a", died...); err != nil {
		t.Fatal(err)
	}
	s.troubled("a", agent.TroubleCutOff, "ossicle ended in its midst")
	one := start(t, a, AgentSpec{ID: "a", Engine: fake.New})
	s.troubled("a", agent.TroubleCutOff, "ossicle ended in its midst")
	if since := s.trouble("a").Since; !since.Equal(began) {
		t.Errorf("since %v, want %v", since, began)
	}
	mustSay(t, one, "two")
	s.troubled("a", "", "")
	all, err := a.Store.List(t.Context(), "a", agent.Query{})
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for _, e := range all {
		if e.Kind == agent.EntryRunEnd && e.Run == "run-of-the-dead" && e.Cause == agent.CauseCutOff {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d ends of the turn that was cut off", ends)
	}
}

// The list says of a session that has just been stopped how its last turn ended, as
// whoever opens the list later is told; its store does not answer for those who are gone.
func TestListTellsHowAStoppedSessionWasLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	one := start(t, a, AgentSpec{ID: "a", Engine: agenttest.New(agenttest.Fail(errors.New("no model"))).New})
	page := s.tab()
	page.subscribe("sessions")
	if _, err := say(t, one, "one"); err == nil {
		t.Error("it did not fail")
	}
	if code, body := s.ask(http.MethodPost, "/v1/sessions/a/stop", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	m := page.until(func(m tabMessage) bool {
		return m.Action == "sessions.changed" && !decode[struct{ Session SessionInfo }](t, m.Data).Session.Running
	})
	if got := decode[struct{ Session SessionInfo }](t, m.Data).Session; got.Trouble == nil || got.Trouble.Kind != agent.TroubleFailed {
		t.Errorf("%s: %+v", got.State, got.Trouble)
	}
}

// A process that does not run a session sees whether another one does before it calls
// a turn cut off, and records no end of it; nor does it forget that session.
func TestTurnsOfAnotherProcessAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := agent.NewMemoryStore(0, 0)
	theirs, ours := testAgents(t, dir), testAgents(t, dir)
	theirs.Store, ours.Store = store, store
	process := serve(t, ours, dir, "b")
	daemon := serve(t, ours, dir, "")
	fake := agenttest.New()
	one := start(t, theirs, AgentSpec{ID: "a", Engine: fake.New})
	if err := store.Append(t.Context(), "a", agent.Entry{Time: time.Now(), Kind: agent.EntryRunStart, Run: "r"}); err != nil {
		t.Fatal(err)
	}
	ends := func() int {
		n := 0
		all, err := store.List(t.Context(), "a", agent.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Kind == agent.EntryRunEnd {
				n++
			}
		}
		return n
	}
	process.troubled("a", "", "")
	daemon.troubled("a", "", "")
	if code, body := daemon.ask(http.MethodDelete, "/v1/sessions/a", ""); code != http.StatusConflict || !strings.Contains(body, "in another process") {
		t.Errorf("it was forgotten: %d %s", code, body)
	}
	if _, err := ours.Start(t.Context(), AgentSpec{ID: "a", Engine: fake.New}); !errors.As(err, new(*RunningError)) {
		t.Errorf("a second process runs the session: %v", err)
	}
	process.troubled("a", "", "")
	if n := ends(); n != 0 {
		t.Errorf("%d ends of the turn of another process", n)
	}
	// They have it no more: nobody has.
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	process.troubled("a", agent.TroubleCutOff, "in its midst")
	second := start(t, ours, AgentSpec{ID: "a", Engine: fake.New})
	process.troubled("a", agent.TroubleCutOff, "in its midst")
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := ends(); n != 1 {
		t.Errorf("%d ends of a turn that was cut off", n)
	}
	if code, body := daemon.ask(http.MethodDelete, "/v1/sessions/a", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if _, err := os.Stat(sessionLockPath(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock of what is forgotten stays: %v", err)
	}
	if code, body := process.ask(http.MethodGet, "/v1/sessions/a", ""); code != http.StatusNotFound {
		t.Errorf("%d %s", code, body)
	}
}

// A session begins also while somebody looks whether it runs, and not while another
// process runs it.
func TestLookersKeepNobodyFromASession(t *testing.T) {
	t.Parallel()
	path := sessionLockPath(t.TempDir(), "a")
	synctest.Test(t, func(t *testing.T) {
		release, err := holdSession(t.Context(), path, "a")
		if err != nil {
			t.Fatal(err)
		}
		release()
		looks, err := filelock.Share(path)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(holdPause, looks)
		if release, err = holdSession(t.Context(), path, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := holdSession(t.Context(), path, "a"); !errors.As(err, new(*RunningError)) {
			t.Errorf("got %v", err)
		}
		release()
	})
}
