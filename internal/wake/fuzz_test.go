package wake

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a host puts on a hook's input is taken or refused, never quoted.
func FuzzHookEvent(f *testing.F) {
	for _, s := range []string{`{"hook_event_name":"Stop"}`, `{}`, `[]`, `{"hook_event_name":"x","hook_event_name":"y"}`, "\xff", `{"hook_event_name":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		event, power, err := hookEvent(HookOptions{Format: HookClaude}, strings.NewReader(input))
		if err != nil && (power != hookMute || len(input) > 8 && strings.Contains(err.Error(), input)) {
			t.Errorf("%q: power %d, %v", input, power, err)
		}
		if err == nil && power != hookEvents[HookClaude][event] {
			t.Errorf("%q: event %q has power %d", input, event, power)
		}
	})
}

// No header is taken that does not carry the one signature.
func FuzzVerifyWebhook(f *testing.F) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	f.Add("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", []byte(`{"test": 2432232314}`))
	f.Add("", "", "", []byte{})
	f.Add("a.1", "2", "v1, v1,,", []byte("3"))
	now := time.Unix(1614265330, 0)
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, payload []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signatures}}
		key, err := parseSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		if VerifyWebhook(h, payload, secret, now) != nil {
			return
		}
		w := &Webhook{secrets: [][]byte{key}}
		want := http.Header{}
		w.sign(want, id, now, payload)
		if !strings.Contains(signatures, strings.TrimRight(want.Get("Webhook-Signature"), "=")[:40]) && timestamp == "1614265330" {
			t.Errorf("%q %q %q was taken", id, timestamp, signatures)
		}
	})
}

// Lines of an app-server are whole, in order, and bounded.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\n\nb\r\n"), 3)
	f.Add(bytes.Repeat([]byte("x"), 100), 50)
	f.Fuzz(func(t *testing.T, input []byte, limit int) {
		limit = max(1, limit%5000)
		r := bufio.NewReaderSize(bytes.NewReader(input), 16)
		var got [][]byte
		for {
			line, err := readLine(r, limit)
			if err != nil {
				break
			}
			if len(line) > limit {
				t.Fatalf("a line of %d bytes", len(line))
			}
			got = append(got, line)
		}
		lines := bytes.Split(input, []byte("\n"))
		for i, line := range got {
			if !bytes.Equal(line, bytes.TrimSpace(lines[i])) {
				t.Fatalf("line %d: got %q, want %q", i, line, lines[i])
			}
		}
	})
}
