package pty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
)

// patience bounds every wait: the machine may be busy.
const patience = 20 * time.Second

// quick are options for programs that answer at once.
func quick() *Options {
	return &Options{Still: 100 * time.Millisecond, TakeWait: patience, ShowWait: patience, EndStill: 300 * time.Millisecond, ExitGrace: 500 * time.Millisecond}
}

// slow are options for a program that draws while it works: on a busy machine it
// rests for long.
func slow() *Options {
	o := quick()
	o.EndStill = 2 * time.Second
	return o
}

// patient are options for a test that counts what happens only when the screen rests:
// a busy machine is not to be taken for one.
func patient() *Options {
	o := quick()
	o.EndStill = 4 * time.Second
	return o
}

// lab is an engine on one of the children of TestMain.
type lab struct {
	*Engine

	t    *testing.T
	term *Terminal
	dir  string

	mu       sync.Mutex
	servers  []agent.MCPServer
	events   []agent.Event
	evidence []attach.Evidence
}

func newLab(t *testing.T, child string, o *Options, args ...string) *lab {
	t.Helper()
	l := &lab{t: t, term: NewTerminal(&TerminalOptions{Cols: 80, Rows: 24}), dir: t.TempDir()}
	t.Cleanup(l.term.Close)
	if o == nil {
		o = quick()
	}
	o.Env = append(os.Environ(), envChild+"="+child)
	l.Engine = New(l.term, append([]string{os.Args[0]}, args...), o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *lab) start(servers ...agent.MCPServer) agent.Info {
	l.t.Helper()
	l.servers = servers
	info, err := l.Start(l.t.Context(), agent.StartOptions{Dir: l.dir, Attachment: l}, l.sink)
	if err != nil {
		l.t.Fatalf("%v; the screen shows:\n%s", err, l.term.Text())
	}
	return info
}

// The lab is told what becomes of the servers.

func (l *lab) Servers(context.Context) ([]agent.MCPServer, error) { return l.servers, nil }
func (l *lab) Decided([]agent.Injected)                           {}
func (l *lab) Answered(string, error)                             {}
func (l *lab) Busy() bool                                         { return false }
func (l *lab) Saw(e attach.Evidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.evidence = append(l.evidence, e)
}

func (l *lab) sink(e agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *lab) count(match func(agent.Event) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.events {
		if match(e) {
			n++
		}
	}
	return n
}

// await waits until the screen shows something.
func (l *lab) await(words string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	return awaitText(ctx, l.t, l.term, words)
}

func awaitText(ctx context.Context, t *testing.T, term *Terminal, words string) string {
	t.Helper()
	for {
		s, grown := term.watch()
		if strings.Contains(s.text, words) {
			return s.text
		}
		select {
		case <-grown:
		case <-ctx.Done():
			t.Fatalf("no %q; the screen shows:\n%s", words, s.text)
		}
	}
}

func say(text string) agent.Prompt {
	return agent.Prompt{Parts: []agent.Part{{Kind: agent.PartUser, Text: text}}}
}

// N-1: a turn is typed as one paste, sent by Enter, and proves nothing.
func TestTurnIsTyped(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui", nil)
	info := l.start()
	if info.Protocol != "terminal" || info.Conversation != "" {
		t.Errorf("got %+v", info)
	}
	for _, text := range []string{"good morning", "two\nlines", strings.Repeat("long words ", 400)} {
		out, err := l.Turn(t.Context(), say(text))
		if err != nil || out != (agent.Outcome{Stop: agent.StopEndTurn, Unproven: true}) {
			t.Fatalf("%+v %v", out, err)
		}
		if len(text) < 100 {
			l.await(fmt.Sprintf("said %q", text))
		}
	}
	if n := l.count(func(e agent.Event) bool { _, ok := e.(agent.Text); return ok }); n != 0 {
		t.Errorf("%d texts: nobody knows what a screen says", n)
	}
	if n := l.count(func(e agent.Event) bool { _, ok := e.(agent.Screen); return ok }); n == 0 {
		t.Error("the session was never told that the screen moves")
	}
}

// D-17: what a notice says is never a key: no escape, no end of the paste, no Enter.
func TestPastesAreNoKeys(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui", slow())
	l.start()
	evil := "harmless \x1b[201~\rrm -rf\r \x9b201~ \u009b201~ \x03\x04\x1b\x1bx end"
	if _, err := l.Turn(t.Context(), say(evil)); err != nil {
		t.Fatal(err)
	}
	text := l.await("said ")
	if strings.Count(text, "said ") != 1 || strings.Contains(text, "ESCAPED") {
		t.Errorf("the screen shows:\n%s", text)
	}
}

// D-17: a dialog that waits for Enter gets none from a prompt.
func TestDialogIsNotAnswered(t *testing.T) {
	t.Parallel()
	o := quick()
	o.ShowWait = time.Second // in which nothing is to be shown
	l := newLab(t, "dialog", o)
	l.start()
	if _, err := l.Turn(t.Context(), say("a notice of some length")); !errors.Is(err, ErrNotShown) {
		t.Errorf("got %v", err)
	}
	if err := l.term.Write([]byte("x")); err != nil { // it is read behind whatever came before
		t.Error(err)
	}
	time.Sleep(100 * time.Millisecond) // nothing is to happen
	if text := l.term.Text(); strings.Contains(text, "APPROVED") {
		t.Errorf("the screen shows:\n%s", text)
	}
	if err := l.term.Write([]byte("\r")); err != nil {
		t.Error(err)
	}
	l.await("APPROVED") // as it would have
}

// D-17: nothing is typed where text would be keys, or a password.
func TestTextIsNoKeys(t *testing.T) {
	t.Parallel()
	for child, evil := range map[string]string{"keys": "APPROVED", "secret": "yes"} {
		o := quick()
		o.TakeWait = 500 * time.Millisecond
		l := newLab(t, child, o)
		l.start()
		if _, err := l.Turn(t.Context(), say("yes, yes, and yes again")); !errors.Is(err, ErrNotStill) || !errors.Is(err, agent.ErrUntaken) {
			t.Errorf("%s: %v", child, err)
		}
		if err := l.term.Write([]byte("no\r")); err != nil { // it is read behind whatever came before
			t.Error(err)
		}
		if child == "secret" {
			l.await(`got "no"`)
		}
		time.Sleep(100 * time.Millisecond) // nothing is to happen
		if text := l.term.Text(); strings.Contains(text, evil) {
			t.Errorf("%s: the screen shows:\n%s", child, text)
		}
	}
}

// N-22: one prompt at a time; it waits while the screen moves, and ends when it
// rests.
func TestTurnWaitsForStillness(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui-slow", slow())
	l.start()
	done := make(chan error, 1)
	go func() {
		_, err := l.Turn(t.Context(), say("first words"))
		done <- err
	}()
	l.await("working")
	if _, err := l.Turn(t.Context(), say("second")); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text := l.term.Text(); !strings.Contains(text, `said "first words"`) {
		t.Errorf("the turn ended before its work:\n%s", text)
	}
}

// A line that a person has begun is theirs: no prompt becomes part of it.
func TestDraftIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := quick()
	o.TakeWait = 400 * time.Millisecond
	l := newLab(t, "tui", o)
	l.start()
	if err := l.term.Write([]byte("half a line")); err != nil {
		t.Fatal(err)
	}
	l.await("half a line")
	if _, err := l.Turn(t.Context(), say("a notice")); !errors.Is(err, ErrNotStill) {
		t.Errorf("got %v", err)
	}
	l.o.TakeWait = patience
	done := make(chan error, 1)
	go func() {
		_, err := l.Turn(t.Context(), say("a notice"))
		done <- err
	}()
	time.Sleep(200 * time.Millisecond) // nothing is to happen
	if err := l.term.Write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil { // it has waited
		t.Error(err)
	}
	if text := l.await(`said "a notice"`); !strings.Contains(text, `said "half a line"`) {
		t.Errorf("the screen shows:\n%s", text)
	}
}

// A turn that is cancelled before Enter presses no key: it might answer a dialog.
func TestCancelBeforeEnter(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Kind = Claude
	l := newLab(t, "tui", o)
	l.start()
	if err := l.term.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	l.await("> x")
	done := make(chan agent.Outcome, 1)
	go func() {
		out, err := l.Turn(t.Context(), say("never"))
		if err != nil {
			t.Error(err)
		}
		done <- out
	}()
	for { // until the turn is there; nobody tells
		l.Engine.mu.Lock()
		begun := l.turn != nil
		l.Engine.mu.Unlock()
		if begun {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := l.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if out := <-done; out.Stop != agent.StopCancelled {
		t.Errorf("got %+v", out)
	}
	if err := l.term.Write([]byte("yz\r")); err != nil {
		t.Fatal(err)
	}
	if text := l.await("said "); !strings.Contains(text, `said "xyz"`) || strings.Contains(text, "ESCAPED") {
		t.Errorf("the screen shows:\n%s", text)
	}
}

// What a person types while a prompt is on its way comes behind it.
func TestPersonWaitsForThePrompt(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui", nil)
	l.start()
	done := make(chan error, 1)
	go func() {
		_, err := l.Turn(t.Context(), say("a notice"))
		done <- err
	}()
	l.await("> a notice") // pasted, and not sent yet
	if err := l.term.Write([]byte("by hand\r")); err != nil {
		t.Fatal(err)
	}
	l.await(`said "by hand"`)
	if text := l.term.Text(); !strings.Contains(text, `said "a notice"`) {
		t.Errorf("the screen shows:\n%s", text)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// enters are how many Enters the program has got.
func (l *lab) enters() int {
	l.t.Helper()
	if err := l.term.Write([]byte("x\x05")); err != nil { // the first ends an Escape
		l.t.Fatal(err)
	}
	text, n := l.await(" Enters"), 0
	if _, err := fmt.Sscanf(text[strings.LastIndex(text, "after "):], "after %d", &n); err != nil {
		l.t.Fatal(err, text)
	}
	return n
}

// N-1: an Enter that a program swallows behind a paste, as Gemini 0.61.0 does when
// both come at once, is pressed again, a few times at most. One that was taken is not.
func TestSwallowedEnter(t *testing.T) {
	t.Parallel()
	for swallows, enters := range map[int]int{0: 1, 1: 2, moreEnters + 5: moreEnters + 1} {
		t.Run(strconv.Itoa(swallows), func(t *testing.T) {
			t.Parallel()
			o := patient()
			if swallows > moreEnters {
				o = quick() // however busy the machine is, it does not change the count
			}
			l := newLab(t, "tui-swallows", o, strconv.Itoa(swallows))
			l.start()
			out, err := l.Turn(t.Context(), say("a notice of some length"))
			if err != nil || !out.Unproven {
				t.Errorf("%+v %v", out, err)
			}
			if n := l.enters(); n != enters {
				t.Errorf("%d Enters, not %d; the screen shows:\n%s", n, enters, l.term.Text())
			}
			if said := strings.Contains(l.term.Text(), "said "); said != (swallows <= moreEnters) {
				t.Errorf("the screen shows:\n%s", l.term.Text())
			}
		})
	}
}

// D-17: Enter is not pressed again once somebody has cancelled, or types.
func TestSwallowedEnterIsLeftToThePerson(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(l *lab) error{
		"cancels": func(l *lab) error { return l.Cancel(l.t.Context()) },
		"types":   func(l *lab) error { return l.term.Write([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := quick()
			o.EndStill = time.Second
			o.Kind = Claude
			l := newLab(t, "tui-swallows", o, "9")
			l.start()
			done := make(chan error, 1)
			go func() {
				_, err := l.Turn(t.Context(), say("a notice of some length"))
				done <- err
			}()
			l.await("\n|") // the Enter has come, as one more line
			if err := does(l); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := l.enters(); n != 1 {
				t.Errorf("%d Enters; the screen shows:\n%s", n, l.term.Text())
			}
		})
	}
}

// Without bracketed paste a prompt is one line.
func TestPlainProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t, "plain", nil)
	l.start()
	if _, err := l.Turn(t.Context(), say("two\nlines")); err != nil {
		t.Fatal(err)
	}
	l.await(`line "two lines"`)
	if _, err := l.Turn(t.Context(), say(strings.Repeat("x", 5000))); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui-slow", slow())
	l.start()
	type result struct {
		out agent.Outcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := l.Turn(t.Context(), say("long work"))
		done <- result{out, err}
	}()
	l.await("working")
	if err := l.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-done; got.err != nil || got.out.Stop != agent.StopCancelled || got.out.Unproven {
		t.Errorf("got %+v", got)
	}
	if err := l.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
}

// N-15: nothing is left of the program, not of its jobs, and not of one that is
// deaf to a hangup.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	l := newLab(t, "jobs", nil)
	l.start()
	var leader, job int
	text := l.await("pids ")
	if _, err := fmt.Sscanf(text[strings.Index(text, "pids "):], "pids %d %d", &leader, &job); err != nil {
		t.Fatal(err, text)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	awaitGone(t, leader)
	awaitGone(t, job)

	deaf := newLab(t, "deaf", nil)
	deaf.start()
	pid := deaf.child.Pid()
	began := time.Now()
	if err := deaf.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it was killed after %v, without its grace", took)
	}
	awaitGone(t, pid)
}

// awaitGone waits until the process is no more than a zombie. The kernel tells
// nobody about a process that is not a child, so it looks again, with a deadline.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs: %s", pid, stat)
		}
	}
}

// A death is told once, with what the screen showed; another life goes on in the
// same terminal.
func TestDeathAndNextLife(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tui", nil)
	l.start()
	view := l.term.Attach(0)
	l.child.Kill()
	<-l.gone
	if n := l.count(func(e agent.Event) bool { _, ok := e.(agent.Exited); return ok }); n != 1 {
		t.Errorf("%d deaths", n)
	}
	if _, err := l.Turn(t.Context(), say("x")); !errors.As(err, new(*agent.ExitError)) {
		t.Errorf("got %v", err)
	}
	if err := l.term.Write([]byte("x")); !errors.Is(err, agent.ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
	next := New(l.term, []string{os.Args[0]}, &Options{Env: append(os.Environ(), envChild+"=plain"), ExitGrace: time.Second})
	if _, err := next.Start(t.Context(), agent.StartOptions{Dir: l.dir}, l.sink); err != nil {
		t.Fatal(err)
	}
	l.await("ready")
	if text := l.term.Text(); strings.Contains(text, "welcome") {
		t.Errorf("the screen was not cleared:\n%s", text)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	l.term.Close()
	all := readAll(t, view)
	for _, part := range []string{"welcome", "has ended: signal: killed", "\x1bc", "ready"} {
		i := strings.Index(all, part)
		if i < 0 {
			t.Fatalf("%q is missing, or not in its place, in %q", part, all)
		}
		all = all[i:]
	}
}

func readAll(t *testing.T, v agent.TerminalView) string {
	t.Helper()
	var b strings.Builder
	for {
		c, err := v.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(c.Data)
	}
}

// A program that ends at once is an error of the start, with its words.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, "dies", nil)
	_, err := l.Start(t.Context(), agent.StartOptions{Dir: l.dir}, l.sink)
	told := 0
	if err == nil { // a busy machine saw its picture before its end
		<-l.gone
		_, err = l.Turn(t.Context(), say("x"))
		told = 1
	}
	var exit *agent.ExitError
	if !errors.As(err, &exit) || strings.Contains(exit.Stderr, "no such model") == (told == 1) {
		t.Errorf("got %v", err)
	}
	if n := l.count(func(e agent.Event) bool { _, ok := e.(agent.Exited); return ok }); n != told {
		t.Errorf("%d deaths, not %d", n, told)
	}
}

// The program's questions are answered here, and never reach a viewer.
func TestQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	l := newLab(t, "asks", nil)
	l.start()
	l.await(`heard "\x1b[1;4R\x1b[?62;22c"`)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	view := l.term.Attach(0)
	l.term.Close()
	if all := readAll(t, view); strings.Contains(all, "\x1b[6n") || strings.Contains(all, "\x1b[c") || !strings.Contains(all, "abc") {
		t.Errorf("viewers got %q", all)
	}
}

// A viewer that does not read delays nobody, and is told what it lost.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	l := newLab(t, "flood", nil)
	view := l.term.Attach(0)
	l.start()
	l.await("DONE")
	c, err := view.Next(t.Context())
	if err != nil || c.Lost == 0 || c.Offset != c.Lost {
		t.Errorf("got offset %d, lost %d, %v", c.Offset, c.Lost, err)
	}
	s := l.term.Status()
	if kept := s.End - s.Oldest; kept > DefaultScrollback || !s.Running {
		t.Errorf("got %+v", s)
	}
	again, err := l.term.Attach(c.Offset + 10).Next(t.Context())
	if err != nil || again.Lost != 0 || string(again.Data[:100]) != string(c.Data[10:110]) {
		t.Errorf("attached at %d: offset %d, lost %d, %v", c.Offset+10, again.Offset, again.Lost, err)
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	l := newLab(t, "plain", nil)
	l.start()
	for _, size := range [][2]int{{1, 10}, {10, 1001}, {-1, 5}} {
		if err := l.term.Resize(size[0], size[1]); !errors.Is(err, agent.ErrTerminalSize) {
			t.Errorf("%v: %v", size, err)
		}
	}
	if err := l.term.Resize(100, 40); err != nil {
		t.Error(err)
	}
	if s := l.term.Status(); s.Cols != 100 || s.Rows != 40 {
		t.Errorf("got %+v", s)
	}
}

// the servers are in the program's own configuration when it starts, in a
// file for its user alone, and every step is evidence; the file goes with the run.
func TestServersAreMaterialized(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Kind = Claude
	l := newLab(t, "shows", o)
	info := l.start(
		agent.MCPServer{Name: "m", HTTP: "http://127.0.0.1:1/mcp/secret", Headers: []agent.Header{{Name: "A", Value: "b"}}},
		agent.MCPServer{Name: "grows", HTTP: "http://127.0.0.1:1/mcp/${HOME}"},
		agent.MCPServer{Name: "nothing"},
	)
	want := []agent.Injected{{Server: "m", Transport: "http", Assumed: true}, {Server: "grows", Reason: "materialize_failed"}, {Server: "nothing", Reason: "no_transport"}}
	if !slices.Equal(info.Injected, want) {
		t.Errorf("got %+v", info.Injected)
	}
	text := strings.ReplaceAll(l.await("file "), "\n", "")
	if !strings.Contains(text, "file -rw-------") || strings.Contains(text, "secret") {
		t.Errorf("the program shows:\n%s", text)
	}
	_, path, _ := strings.Cut(text, "--mcp-config=")
	path, _, _ = strings.Cut(path, `"`)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the configuration is left: %v", err)
	}
	kinds(t, l, "server_delivered m http ", "server_error grows  materialize_failed", "server_filtered nothing  no_transport", "session_accepted   ", "session_accepted m http ")
}

func kinds(t *testing.T, l *lab, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []string
	for _, e := range l.evidence {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Kind, e.Server, e.Transport, e.Reason))
	}
	if !slices.Equal(got, want) {
		t.Errorf("evidence:\ngot  %q\nwant %q", got, want)
	}
}

// what cannot be done is evidence too, never silence.
func TestServersThatAreNotMaterialized(t *testing.T) {
	t.Parallel()
	server := agent.MCPServer{Name: "m", HTTP: "http://127.0.0.1:1/mcp"}

	other := newLab(t, "plain", nil)
	other.start(server)
	kinds(t, other, "server_filtered m  no_passthrough_strategy", "session_accepted   ")

	o := quick()
	o.Kind = OpenCode
	broken := newLab(t, "plain", o)
	broken.o.Env = append(broken.o.Env, openCodeContent+"=no JSON")
	if info := broken.start(server); info.Injected[0].Reason != "materialize_failed" {
		t.Errorf("got %+v", info.Injected)
	}
	kinds(t, broken, "server_error m  materialize_failed", "session_accepted   ")

	o = quick()
	o.Kind = Codex
	missing := newLab(t, "plain", o)
	missing.command = []string{"/nowhere/codex"}
	missing.servers = []agent.MCPServer{server}
	if _, err := missing.Start(t.Context(), agent.StartOptions{Dir: missing.dir, Attachment: missing}, missing.sink); err == nil {
		t.Error("it started")
	}
	kinds(t, missing, "server_delivered m http ", "session_error   spawn_failed")
}
