package wake

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func shell(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

// D-14: the message on standard input and in the environment, the exit code as
// proof.
func TestExec(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := delivery("changed")
	e := NewExec(shell(`cat; printf '%s|' "$OSSICLE_AGENT" "$OSSICLE_DELIVERY" "$OSSICLE_NOTICES" "$OSSICLE_COUNT" "$OSSICLE_SOURCE" "$OSSICLE_NAME" "$OSSICLE_URI" "$MINE" "$OSSICLE_TEXT"`),
		&ExecOptions{Env: []string{"MINE=x"}, Stdout: &out})
	o := wakeWith(t, e, d, time.Minute)
	equal(t, []any{o.proofs, o.state, o.err}, []any{states(notice.Notified), notice.Seen, nil})
	equal(t, out.String(), d.Text+"\na|d_test|n1|1|watch|memo|memo://notes|x|"+d.Text+"|")
}

// D-14: a host that swallows, that is busy, that dies, that hangs.
func TestExecMisbehaves(t *testing.T) {
	t.Parallel()
	run := func(script string, o *ExecOptions, limit time.Duration) outcome {
		return wakeWith(t, NewExec(shell(script), o), delivery("secret text"), limit)
	}
	swallowed := run("exit 0", &ExecOptions{Proof: notice.Notified}, time.Minute)
	equal(t, []any{swallowed.state, swallowed.err}, []any{notice.Notified, nil})

	var busy *notice.BusyError
	if o := run("exit 75", nil, time.Minute); !errors.As(o.err, &busy) {
		t.Errorf("got %v, want a BusyError", o.err)
	}
	var host *notice.HostError
	o := run("cat >&2; exit 3", nil, time.Minute)
	if !errors.As(o.err, &host) || host.Code != 3 || !strings.Contains(host.Detail, "secret text") || strings.Contains(o.err.Error(), "secret") {
		t.Errorf("got %v, detail %q", o.err, host.Detail)
	}
	if o := run("kill -9 $$", nil, time.Minute); !errors.As(o.err, &host) || host.Code != -1 {
		t.Errorf("got %v", o.err)
	}
	// One that hangs is ended with what it started: the end of a pipe that both
	// hold open tells.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo)
		gone <- err
	}()
	o = run("exec 3>"+fifo+"; sleep 1000 & wait", nil, short)
	if o.err == nil {
		t.Error("a command that hangs is no error")
	}
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("its child lives on")
	}
	// One that prints without end is not held up, nor does it hold us up.
	if o := run("head -c 3000000 /dev/zero; cat >/dev/null", nil, time.Minute); o.err != nil {
		t.Errorf("got %v", o.err)
	}
	if o := wakeWith(t, NewExec([]string{"no-such-program-anywhere"}, nil), delivery("x"), time.Minute); o.err == nil {
		t.Error("a program that is not there ran")
	}
}

func TestExecDoctor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		e     *Exec
		cause string
	}{
		"good":         {NewExec([]string{"sh"}, nil), ""},
		"no command":   {NewExec(nil, nil), "no command given"},
		"not there":    {NewExec([]string{"no-such-program-anywhere"}, nil), "not found"},
		"no directory": {NewExec([]string{"sh"}, &ExecOptions{Dir: "/no/such/dir"}), "/no/such/dir is no directory"},
	} {
		checks := Examine(t.Context(), tt.e)
		if len(checks) != 1 || checks[0].OK != (tt.cause == "") || !strings.Contains(checks[0].Cause, tt.cause) || !checks[0].OK && checks[0].Fix == "" || !strings.HasPrefix(checks[0].Name, "exec: ") {
			t.Errorf("%s: got %+v", name, checks)
		}
	}
}

// D-17: whatever a notice says, a command gets it as data: on its input, and in
// variables of one line.
func TestExecHostile(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := NewExec(shell(`cat; printf '\036%s\036%s\036%s' "$OSSICLE_NAME" "$OSSICLE_URI" "$OSSICLE_FROM"; test -e pwned && echo PWNED`), &ExecOptions{Stdout: &out, Dir: t.TempDir()})
	for _, h := range noticetest.Corpus(t) {
		out.Reset()
		n := notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceSignal, Title: h.Text, Text: h.Text, Meta: map[string]string{"uri": h.Text, "from": h.Text}}
		if o := wakeWith(t, e, deliveryOf(n), time.Minute); o.err != nil && !strings.Contains(o.err.Error(), "answered 1") {
			t.Errorf("%s: %v", h.Name, o.err)
		}
		parts := strings.Split(out.String(), "\x1e")
		if len(parts) != 4 || strings.Contains(out.String(), "PWNED") {
			t.Fatalf("%s: got %q", h.Name, out.String())
		}
		noticetest.Bearable(t, strings.TrimSuffix(parts[0], "\n"), 1)
		for _, v := range parts[1:] {
			if strings.ContainsAny(v, "\n\r\x00\x1b") {
				t.Errorf("%s: a variable has %q", h.Name, v)
			}
		}
	}
}
