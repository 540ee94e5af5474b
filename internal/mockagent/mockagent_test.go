package mockagent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/mockagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseModes(t *testing.T) {
	t.Parallel()
	got, err := mockagent.ParseModes([]string{"async", "legacy", "abort-error", "slow=2s", "dies=3", "quiet", "nohttp"})
	if err != nil {
		t.Fatal(err)
	}
	want := &mockagent.Options{
		Attach: mockagent.Async, Era: mockagent.Legacy, Overlap: mockagent.AbortError, Slow: 2 * time.Second, DieAt: 3, Quiet: true, NoHTTP: true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, m := range mockagent.Modes() {
		o, err := mockagent.ParseModes([]string{m})
		if err != nil || cmp.Equal(o, &mockagent.Options{}) {
			t.Errorf("%s: %+v %v", m, o, err)
		}
	}
	for _, bad := range []string{"", "modes", "slow=x", "dies=x", "eager=1", "quiet=1", "Eager"} {
		if o, err := mockagent.ParseModes([]string{bad}); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

// talk is a client of an agent that runs in this process.
type talk struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
	errw  lockedBuilder
}

func start(t *testing.T, o *mockagent.Options) *talk {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	k := &talk{t: t, in: inW, out: bufio.NewReader(outR), ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.ended <- mockagent.Run(t.Context(), inR, outW, &k.errw, o)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		<-done
	})
	return k
}

func (k *talk) send(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

// until reads lines until one contains s, and returns all of them.
func (k *talk) until(s string) string {
	k.t.Helper()
	var b strings.Builder
	for {
		line, err := k.out.ReadString('\n')
		b.WriteString(line)
		switch {
		case err != nil:
			k.t.Fatalf("no %q in:\n%s", s, b.String())
		case strings.Contains(line, s):
			return b.String()
		}
	}
}

func (k *talk) open() string {
	k.t.Helper()
	k.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`)
	k.until(`"id":1,`)
	k.send(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`)
	var r struct{ Result struct{ SessionID string } }
	lines := strings.Split(strings.TrimSpace(k.until(`"sessionId"`)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		k.t.Fatal(err)
	}
	return r.Result.SessionID
}

func (k *talk) prompt(id, session, text string) {
	k.t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		k.t.Fatal(err)
	}
	k.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"session/prompt","params":{"sessionId":"` + session + `","prompt":[{"type":"text","text":` + string(b) + `}]}}`)
}

// reply joins the pieces of a message.
func reply(lines string) string {
	var b strings.Builder
	for l := range strings.SplitSeq(lines, "\n") {
		var m struct {
			Params struct {
				Update struct {
					SessionUpdate string
					Content       struct{ Text string }
				}
			}
		}
		if json.Unmarshal([]byte(l), &m) == nil && m.Params.Update.SessionUpdate == "agent_message_chunk" {
			b.WriteString(m.Params.Update.Content.Text)
		}
	}
	return b.String()
}

func TestNotices(t *testing.T) {
	t.Parallel()
	k := start(t, nil)
	s := k.open()
	for i, tc := range []struct{ prompt, want string }{
		{"<watch-event name=\"a\" uri=\"b\">\nx is 2\n</watch-event>\nanswer exactly NO_REPLY", "heard: x is 2"},
		{"QUIET", "you said QUIET"},
		{"<watch-event name=\"a\">\nx is 3\n</watch-event>", "NO_REPLY"},
		{"LOUD SAY fine", "fine"},
		{"<watch-event>1</watch-event> <watch-event>2</watch-event>", "heard: 1\n2"},
		{"Messages with <watch-event> are notices.\n<watch-event name=\"a\">\nx is 4\n</watch-event>", "heard: x is 4"},
	} {
		k.prompt(string(rune('3'+i)), s, tc.prompt)
		if got := reply(k.until(`"stopReason":"end_turn"`)); got != tc.want {
			t.Errorf("%q: %q", tc.prompt, got)
		}
	}
	_ = k.in.Close()
	if err := <-k.ended; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		o     mockagent.Overlap
		first string
	}{
		{mockagent.Queue, `"id":3,"jsonrpc":"2.0","result":{"stopReason":"end_turn"`},
		{mockagent.Abort, `"id":3,"jsonrpc":"2.0","result":{"stopReason":"cancelled"}`},
		{mockagent.AbortError, `"message":"Request was aborted."},"id":3`},
	} {
		t.Run(string(tc.o), func(t *testing.T) {
			t.Parallel()
			// In a bubble the first turn sleeps until the second prompt has been read, on
			// any machine.
			synctest.Test(t, func(t *testing.T) {
				k := start(t, &mockagent.Options{Overlap: tc.o})
				s := k.open()
				k.prompt("3", s, "SLEEP 2s")
				k.prompt("4", s, "second")
				all := k.until(`"id":4`)
				if !strings.Contains(all, tc.first) || !strings.Contains(reply(all), "you said second") {
					t.Errorf("got\n%s", all)
				}
				if !strings.Contains(k.errw.String(), "overlap") {
					t.Error("the overlap is not told")
				}
			})
		})
	}
}

func TestDies(t *testing.T) {
	t.Parallel()
	k := start(t, &mockagent.Options{})
	k.prompt("3", k.open(), "DIE")
	go func() { _, _ = io.Copy(io.Discard, k.out) }()
	if err := <-k.ended; !errors.Is(err, mockagent.ErrDied) {
		t.Errorf("got %v", err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in, w := io.Pipe()
	defer w.Close()
	ended := make(chan error, 1)
	go func() { ended <- mockagent.Run(ctx, in, io.Discard, io.Discard, nil) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
}

// Entries that strict agents refuse are refused here too.
func TestStrictEntries(t *testing.T) {
	t.Parallel()
	k := start(t, &mockagent.Options{Attach: mockagent.Never, NoSSE: true})
	for _, entry := range []string{
		`{"type":"http","name":"x","url":"http://127.0.0.1:1"}`, `{"type":"http","name":"x","url":"http://127.0.0.1:1","headers":null}`,
		`{"name":"x","command":"/bin/true","args":null,"env":[]}`, `{"name":"x","command":"/bin/true","args":[]}`,
		`{"type":"sse","name":"x","url":"http://127.0.0.1:1","headers":[]}`, `{"type":"acp","name":"x","url":"y","headers":[]}`, `null`,
	} {
		k.send(`{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[` + entry + `]}}`)
		if got := k.until(`"id":7`); !strings.Contains(got, "-32602") {
			t.Errorf("%s: %s", entry, got)
		}
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
