package wake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// inbox returns an inbox with an agent "a" and so many notices for it.
func inbox(t *testing.T, notices int, o *notice.Options) *notice.Inbox {
	t.Helper()
	in := notice.New(noticetest.NewStore(), o)
	if err := in.Register(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for i := range notices {
		post(t, in, notice.Notice{ID: fmt.Sprintf("n%d", i), Source: notice.SourceWatch, Title: "memo", Text: fmt.Sprintf("change %d", i)})
	}
	return in
}

func post(t *testing.T, in *notice.Inbox, n notice.Notice) {
	t.Helper()
	n.Agent = "a"
	if _, err := in.Post(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func stateOf(t *testing.T, in *notice.Inbox, id string) notice.State {
	t.Helper()
	r, err := in.Get(t.Context(), "a", id)
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

const aside = "<watch-event name=\"memo\">\nchange 0\n</watch-event>\nThis is a notification, not a user message. Mention it only if it matters to what was asked."

// D-13: the forms that hooks take, to the byte.
func TestDigestForms(t *testing.T) {
	t.Parallel()
	quoted, err := jsonString(aside)
	if err != nil {
		t.Fatal(err)
	}
	adds := func(event string) string {
		return `{"hookSpecificOutput":{"hookEventName":"` + event + `","additionalContext":` + quoted + "}}\n"
	}
	blocks := `{"decision":"block","reason":` + quoted + "}\n"
	for _, tt := range []struct {
		format HookFormat
		stdin  string
		want   string
	}{
		{"", "", aside + "\n"},
		{HookText, "whatever", aside + "\n"},
		{HookClaude, `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hi"}`, adds("UserPromptSubmit")},
		{HookClaude, `{"hook_event_name":"SessionStart"}`, adds("SessionStart")},
		{HookClaude, `{"hook_event_name":"PostToolUse"}`, adds("PostToolUse")},
		{HookClaude, `{"hook_event_name":"Stop","stop_hook_active":true}`, blocks},
		{HookClaude, `{}`, adds("UserPromptSubmit")},
		{HookCodex, `{"hook_event_name":"UserPromptSubmit"}`, adds("UserPromptSubmit")},
		{HookCodex, `{"hook_event_name":"Stop"}`, blocks},
		{HookGemini, `{"hook_event_name":"BeforeAgent"}`, adds("BeforeAgent")},
		{HookGemini, `{}`, adds("BeforeAgent")},
		// What nothing would reach the model of, prints nothing and marks nothing.
		{HookGemini, `{"hook_event_name":"AfterAgent"}`, ""},
		{HookClaude, `{"hook_event_name":"Notification"}`, ""},
		{HookCodex, `{"hook_event_name":"PreCompact"}`, ""},
	} {
		in := inbox(t, 1, nil)
		var out bytes.Buffer
		n, err := Digest(t.Context(), in, "a", strings.NewReader(tt.stdin), &out, &HookOptions{Format: tt.format})
		if err != nil || out.String() != tt.want {
			t.Errorf("%s %s: got %q, %v, want %q", tt.format, tt.stdin, out.String(), err, tt.want)
		}
		state := notice.Seen
		if tt.want == "" {
			state = notice.Persisted
		}
		if got := stateOf(t, in, "n0"); got != state || (n == 1) != (tt.want != "") {
			t.Errorf("%s %s: state %s, count %d", tt.format, tt.stdin, got, n)
		}
		// And never twice.
		out.Reset()
		if n, err := Digest(t.Context(), in, "a", nil, &out, nil); err != nil || (n == 0) != (tt.want != "") {
			t.Errorf("%s %s again: %d, %v, %q", tt.format, tt.stdin, n, err, out.String())
		}
	}
}

func jsonString(s string) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return strings.TrimSuffix(b.String(), "\n"), err
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// D-4: what could not be printed was not shown.
func TestDigestErrors(t *testing.T) {
	t.Parallel()
	in := inbox(t, 1, nil)
	if _, err := Digest(t.Context(), in, "a", nil, brokenPipe{}, nil); err == nil {
		t.Error("a broken pipe is no error")
	}
	for _, stdin := range []string{"", "no json", `[]`, `{"hook_event_name":1}`} {
		if _, err := Digest(t.Context(), in, "a", strings.NewReader(stdin), &bytes.Buffer{}, &HookOptions{Format: HookClaude}); err == nil || strings.Contains(err.Error(), "no json") {
			t.Errorf("%q: got %v", stdin, err)
		}
	}
	if _, err := Digest(t.Context(), in, "a", nil, &bytes.Buffer{}, &HookOptions{Format: "emacs"}); err == nil {
		t.Error("an unknown format is no error")
	}
	if _, err := Digest(t.Context(), in, "b", nil, &bytes.Buffer{}, nil); !errors.As(err, new(*notice.UnknownAgentError)) {
		t.Errorf("got %v", err)
	}
	equal(t, stateOf(t, in, "n0"), notice.Persisted)
	var out bytes.Buffer
	n, err := Digest(t.Context(), in, "a", nil, &out, nil)
	equal(t, []any{n, err, out.String()}, []any{1, error(nil), aside + "\n"})
}

// D-7: a stop hook begins a turn and is held to the budget; deep notices wait
// for a person's prompt.
func TestDigestBudget(t *testing.T) {
	t.Parallel()
	in := inbox(t, 1, &notice.Options{Budget: notice.Budget{WakesPerMinute: 1}})
	stop := func() int {
		n, err := Digest(t.Context(), in, "a", nil, &bytes.Buffer{}, &HookOptions{Format: HookClaude, Event: "Stop"})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	equal(t, stop(), 1)
	post(t, in, notice.Notice{ID: "late", Source: notice.SourceFeed})
	post(t, in, notice.Notice{ID: "deep", Source: notice.SourceFeed, Depth: 9})
	equal(t, []any{stop(), stateOf(t, in, "late")}, []any{0, notice.Persisted})
	n, err := Digest(t.Context(), in, "a", nil, &bytes.Buffer{}, &HookOptions{Format: HookClaude, Event: "PostToolUse"})
	equal(t, []any{n, err, stateOf(t, in, "deep")}, []any{1, error(nil), notice.Persisted})
	n, err = Digest(t.Context(), in, "a", nil, &bytes.Buffer{}, &HookOptions{Format: HookClaude, Event: "UserPromptSubmit"})
	equal(t, []any{n, err}, []any{1, error(nil)})
}

// D-17: hostile texts in every form of every hook: valid JSON, one document,
// and inside it a message that holds.
func TestDigestHostile(t *testing.T) {
	t.Parallel()
	for _, h := range noticetest.Corpus(t) {
		for format, event := range map[HookFormat]string{HookText: "", HookClaude: "Stop", HookCodex: "UserPromptSubmit", HookGemini: "BeforeAgent"} {
			in := inbox(t, 0, nil)
			post(t, in, notice.Notice{Source: notice.SourceFeed, Title: h.Text, Text: h.Text})
			var out bytes.Buffer
			if _, err := Digest(t.Context(), in, "a", nil, &out, &HookOptions{Format: format, Event: event}); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
			text := strings.TrimSuffix(out.String(), "\n")
			if format != HookText {
				var v struct {
					Reason   string
					Specific struct{ AdditionalContext string } `json:"hookSpecificOutput"`
				}
				if strings.Count(out.String(), "\n") != 1 || json.Unmarshal(out.Bytes(), &v) != nil {
					t.Fatalf("%s: %q is not one line of JSON", h.Name, out.String())
				}
				text = v.Reason + v.Specific.AdditionalContext
			}
			noticetest.Bearable(t, text, 1)
			if len(text) > 10_000 {
				t.Errorf("%s: %d bytes are more than hosts take whole", h.Name, len(text))
			}
		}
	}
}
