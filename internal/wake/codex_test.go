package wake

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

const fakeCodexEnv = "WAKE_TEST_CODEX"

// fakeCodex is "codex" as far as we use it. It writes what it was given to the
// file "received" in its directory.
func fakeCodex(mode string) {
	if os.Args[1] == "queue" {
		fakeCodexQueue(mode)
		return
	}
	say := func(v any) {
		b, _ := json.Marshal(v)
		fmt.Println(string(b))
	}
	type object = map[string]any
	notify := func(method, thread, turn, status string) {
		say(object{"method": method, "params": object{"threadId": thread, "turn": object{"id": turn, "status": status}}})
	}
	fmt.Println("a line of a log, which is not JSON")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			Error  *struct{ Code int }
		}
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch m.Method {
		case "initialize":
			switch mode {
			case "overloaded":
				say(object{"id": m.ID, "error": object{"code": -32001, "message": "Server overloaded; retry later."}})
			case "silent":
			default:
				say(object{"id": m.ID, "result": object{"userAgent": "fake"}})
			}
		case "thread/resume":
			status := "idle"
			if mode == "active" {
				status = "active"
			}
			if mode == "unknown" {
				say(object{"id": m.ID, "error": object{"code": -32600, "message": "no rollout found for " + string(m.Params)}})
				continue
			}
			say(object{"id": m.ID, "result": object{"thread": object{"id": "t1", "status": object{"type": status}}}})
		case "turn/start":
			_ = os.WriteFile("received", m.Params, 0o600)
			if mode == "refuses" {
				say(object{"id": m.ID, "error": object{"code": -32603, "message": string(m.Params)}})
				continue
			}
			if mode == "early" {
				notify("turn/started", "t1", "u1", "inProgress")
				notify("turn/completed", "t1", "u1", "completed")
			}
			say(object{"id": m.ID, "result": object{"turn": object{"id": "u1", "status": "inProgress"}}})
			switch mode {
			case "dies":
				notify("turn/started", "t1", "u1", "inProgress")
				os.Exit(3)
			case "hangs":
				notify("turn/started", "t1", "u1", "inProgress")
			case "swallows", "early":
			case "asks":
				notify("turn/started", "t1", "u1", "inProgress")
				say(object{"id": "q1", "method": "item/commandExecution/requestApproval", "params": object{"threadId": "t1"}})
			case "fails":
				notify("turn/started", "t1", "u1", "inProgress")
				notify("turn/completed", "t1", "u1", "failed")
			default: // and it repeats itself, and speaks of other turns
				notify("turn/completed", "t2", "u1", "completed")
				notify("turn/completed", "t1", "u0", "completed")
				say(object{"method": "item/started", "params": object{"threadId": "t1"}})
				say(object{"method": "odd", "params": []int{1}})
				notify("turn/started", "t1", "u1", "inProgress")
				notify("turn/started", "t1", "u1", "inProgress")
				notify("turn/completed", "t1", "u1", "completed")
				notify("turn/completed", "t1", "u1", "completed")
			}
		case "":
			if m.Error != nil && m.Error.Code == -32601 { // our question was refused: the turn goes on without
				notify("turn/completed", "t1", "u1", "completed")
			}
		}
	}
}

func fakeCodexQueue(mode string) {
	switch mode {
	case "hangs":
		time.Sleep(time.Hour)
	case "refuses":
		fmt.Fprintln(os.Stderr, "unknown thread", os.Args)
		os.Exit(1)
	}
	b, _ := json.Marshal(os.Args[1:])
	_ = os.WriteFile("received", b, 0o600)
	fmt.Println("Queued message m1 for thread t1")
}

func codex(t *testing.T, mode string, queue bool) (*Codex, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return NewCodex("t1", &CodexOptions{Queue: queue, Command: []string{self}, Env: []string{fakeCodexEnv + "=" + mode, "GORACE=atexit_sleep_ms=0"}, Dir: dir}), filepath.Join(dir, "received")
}

// D-15: a turn is followed from its start to its end.
func TestCodex(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]notice.State{
		"good":  states(notice.Notified, notice.Woken, notice.Woken),
		"early": states(notice.Notified, notice.Woken), // the turn was over before its answer
		"asks":  states(notice.Notified, notice.Woken), // and is refused
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c, received := codex(t, mode, false)
			d := delivery("changed")
			o := wakeWith(t, c, d, 30*time.Second)
			equal(t, []any{o.proofs, o.state, o.err}, []any{want, notice.Seen, error(nil)})
			got, err := os.ReadFile(received)
			if err != nil {
				t.Fatal(err)
			}
			var params struct {
				ThreadID string `json:"threadId"`
				Input    []struct{ Type, Text string }
			}
			if err := json.Unmarshal(got, &params); err != nil || len(params.Input) != 1 {
				t.Fatalf("%s, %v", got, err)
			}
			equal(t, []any{params.ThreadID, params.Input[0].Type, params.Input[0].Text}, []any{"t1", "text", d.Text})
		})
	}
}

// D-9: an app-server that is busy, refuses, swallows, fails, dies, hangs.
func TestCodexMisbehaves(t *testing.T) {
	t.Parallel()
	busy := func(err error) bool { return errors.As(err, new(*notice.BusyError)) }
	host := func(err error) bool { return errors.As(err, new(*notice.HostError)) }
	other := func(err error) bool { return err != nil && !busy(err) && !host(err) }
	for mode, tt := range map[string]struct {
		proofs []notice.State
		err    func(error) bool
		limit  time.Duration
	}{
		"overloaded": {nil, busy, time.Minute},
		"active":     {nil, busy, time.Minute},
		"unknown":    {nil, host, time.Minute},
		"refuses":    {nil, host, time.Minute},
		"silent":     {nil, other, 2 * short},
		"swallows":   {states(notice.Notified), other, 2 * short}, // a process starts first
		"hangs":      {states(notice.Notified, notice.Woken), other, 2 * short},
		"fails":      {states(notice.Notified, notice.Woken), host, time.Minute},
		"dies":       {states(notice.Notified, notice.Woken), other, time.Minute},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c, _ := codex(t, mode, false)
			o := wakeWith(t, c, delivery("secret"), tt.limit)
			if !tt.err(o.err) || strings.Contains(o.err.Error(), "secret") {
				t.Errorf("got %v", o.err)
			}
			equal(t, o.proofs, tt.proofs)
		})
	}
}

// D-15: "codex queue" proves that it was queued, no more.
func TestCodexQueue(t *testing.T) {
	t.Parallel()
	c, received := codex(t, "good", true)
	d := delivery("changed")
	o := wakeWith(t, c, d, 30*time.Second)
	equal(t, []any{o.proofs, o.state, o.err}, []any{[]notice.State(nil), notice.Notified, error(nil)})
	got, err := os.ReadFile(received)
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	if err := json.Unmarshal(got, &args); err != nil {
		t.Fatal(err)
	}
	equal(t, args, []string{"queue", "--thread", "t1", "--message", d.Text})

	c, _ = codex(t, "refuses", true)
	var host *notice.HostError
	if o := wakeWith(t, c, delivery("secret"), 30*time.Second); !errors.As(o.err, &host) || host.Code != 1 || strings.Contains(o.err.Error(), "secret") {
		t.Errorf("got %v", o.err)
	}
	c, _ = codex(t, "hangs", true)
	if o := wakeWith(t, c, delivery("x"), time.Second); !errors.Is(o.err, notice.ErrUncertain) {
		t.Errorf("got %v", o.err)
	}
}

func TestCodexDoctor(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"good": "", "active": "", "unknown": "no rollout found", "dies": ""} {
		c, _ := codex(t, mode, false)
		checks := Examine(t.Context(), c)
		last := checks[len(checks)-1]
		if len(checks) != 2 || last.OK != (want == "") || !strings.Contains(last.Cause, want) {
			t.Errorf("%s: got %+v", mode, checks)
		}
	}
	for _, c := range []*Codex{NewCodex("", nil), NewCodex("t1", &CodexOptions{Command: []string{"no-such-program-anywhere"}})} {
		if checks := c.Doctor(t.Context()); len(checks) != 1 || checks[0].OK || checks[0].Fix == "" {
			t.Errorf("got %+v", checks)
		}
	}
	c := NewCodex("t1", &CodexOptions{Command: []string{"true"}})
	if checks := c.Doctor(t.Context()); len(checks) != 2 || checks[1].OK || !strings.Contains(checks[1].Fix, "app-server") {
		t.Errorf("got %+v", checks)
	}
}

// codexScript is a Codex that takes one turn, or one message for its queue. It
// starts a hundred times faster than fakeCodex.
const codexScript = `
if [ "$1" = queue ]; then printf %s "$5" >received; exit; fi
read -r line; echo '{"id":1,"result":{}}'
read -r line
read -r line; echo '{"id":2,"result":{"thread":{"status":{"type":"idle"}}}}'
read -r line; printf %s "$line" >received
echo '{"id":3,"result":{"turn":{"id":"u1"}}}'
echo '{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed"}}}'
`

// D-17.
func TestCodexHostile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, queue := range []bool{false, true} {
		c := NewCodex("t1", &CodexOptions{Queue: queue, Command: shell(codexScript), Dir: dir})
		for _, h := range noticetest.Corpus(t) {
			d := deliveryOf(notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Title: h.Text, Text: h.Text})
			if o := wakeWith(t, c, d, 30*time.Second); o.err != nil {
				t.Fatalf("%s: %v", h.Name, o.err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "received"))
			if err != nil {
				t.Fatal(err)
			}
			text := string(got)
			if !queue {
				var m struct {
					Params struct{ Input []struct{ Text string } }
				}
				if err := json.Unmarshal(got, &m); err != nil || len(m.Params.Input) != 1 {
					t.Fatalf("%s: %s, %v", h.Name, got, err)
				}
				text = m.Params.Input[0].Text
			}
			equal(t, text, d.Text)
			noticetest.Bearable(t, text, 1)
		}
	}
}
