package kubernetes

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzParseEvent: whatever a line holds, it is one event, one refusal, or an error,
// and the state of what was watched can take it.
func FuzzParseEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":{"metadata":{"name":"agt-a-x","uid":"u","resourceVersion":"7","annotations":{"ossicle/session":"a"},"ownerReferences":[{"kind":"Job","name":"agt-a","controller":true}]},"status":` + statusRunning + `}}`,
		`{"type":"DELETED","object":{"metadata":{"name":"agt-a","uid":"j","annotations":{"ossicle/session":"a"}},"status":{"conditions":[{"type":"Failed","status":"True"}]}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}`,
		`{"type":"ADDED","object":null}`, `{"type":"ADDED"}`, `{}`, `null`, `[]`, `{"type":"ADDED","object":{"metadata":7}}`, "\xff", `{"type":"ADDED","type":"ERROR"}`,
		`{"type":"ADDED","object":{"status":` + terminated(1<<30, "OOMKilled", "x") + `}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		kind, o, err := parseEvent("watch pods", line)
		if err != nil {
			if kind != "" {
				t.Errorf("%q: %s and %v", line, kind, err)
			}
			return
		}
		now := time.Unix(0, 0)
		for _, resource := range []string{"jobs", "pods", "events"} {
			tr := newTracker()
			tr.expect("a", now.Add(time.Minute))
			c := change{resource: resource, object: o, deleted: kind == "DELETED"}
			told := 0
			for range 3 {
				for _, x := range tr.apply(c, now) {
					if x.exit != nil {
						told++
					}
				}
				tr.apply(change{resource: resource, listed: true}, now)
			}
			for _, x := range tr.expire(now.Add(time.Hour)) {
				if x.exit != nil {
					told++
				}
			}
			if told > 2 { // the session that is ours, and the one of the object
				t.Errorf("%q: told %d times", line, told)
			}
			if _, due := tr.next(); due {
				t.Errorf("%q: still waits", line)
			}
		}
	})
}

func FuzzRefusal(f *testing.F) {
	f.Add(403, "", []byte(`{"kind":"Status","code":403,"reason":"Forbidden","message":"exceeded quota: a"}`))
	f.Add(429, "7", []byte(`{"kind":"Status","details":{"retryAfterSeconds":99999999999}}`))
	f.Add(502, "-1", []byte(`<html>`))
	f.Add(503, "Fri, 31 Dec 1999 23:59:59 GMT", []byte{0xff})
	f.Fuzz(func(t *testing.T, code int, after string, body []byte) {
		h := http.Header{}
		h["Retry-After"] = []string{after}
		e := refusal("create job", code, h, body)
		if e.RetryAfter < 0 || e.RetryAfter > maxRetryAfter || len(e.Message) > maxText+3 || strings.ContainsAny(e.Error(), "\n\r\x00\x1b") {
			t.Errorf("%+v", e)
		}
		if errors.Is(e, ErrQuota) && errors.Is(e, ErrForbidden) {
			t.Error("one error of two kinds")
		}
	})
}

// FuzzLines: however a stream is cut into reads, the lines are the same, and what
// has no end is none.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\n", 1)
	f.Add("a\n\nb", 2)
	f.Add("\r\n\n", 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		s := bufio.NewScanner(&chunks{text, max(1, size%7)})
		s.Buffer(nil, 1<<16)
		s.Split(wholeLines)
		var got []string
		for s.Scan() {
			got = append(got, s.Text())
		}
		whole := strings.Split(text, "\n")
		rest := whole[len(whole)-1]
		if len(text) < 1<<16 && (strings.Join(got, "\n") != strings.Join(whole[:len(whole)-1], "\n") || (rest != "") != errors.Is(s.Err(), io.ErrUnexpectedEOF)) {
			t.Errorf("%q: %q, %v", text, got, s.Err())
		}
	})
}

type chunks struct {
	text string
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.text)
	c.text = c.text[n:]
	return n, nil
}

// FuzzKubeconfig: no file makes us panic, no error repeats a secret, and what is
// accepted may get credentials.
func FuzzKubeconfig(f *testing.F) {
	for _, s := range []string{kubeconfigText("https://c.example", "token: s3cret"), kubeconfigText("http://c.example", "token: s3cret"), "a: [", "", "clusters: 7", kubeconfigText("https://c", "exec: {apiVersion: client.authentication.k8s.io/v1, command: x}")} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseKubeconfig(text, t.TempDir(), "")
		if err != nil {
			if strings.Contains(string(text), "s3cret") && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v", err)
			}
			return
		}
		if a.base.Host == "" || a.base.Scheme != "https" && !isLoopback(a.base.Hostname()) {
			t.Errorf("%q: %v", text, a.base)
		}
	})
}

func FuzzCredential(f *testing.F) {
	for _, s := range []string{
		`{"kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2026-01-01T00:00:00Z"}}`, `{"kind":"ExecCredential","status":{"token":"a b"}}`,
		`{"kind":"ExecCredential","status":{"clientCertificateData":"x"}}`, `{}`, `s3cret`, `{"kind":"ExecCredential","status":{"token":"t","token":"u"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		token, _, err := parseCredential(out)
		if (err == nil) != validBearer(token) {
			t.Errorf("%q: %q, %v", out, token, err)
		}
	})
}

// kubeconfigText is a file with one of each.
func kubeconfigText(server, user string) string {
	return `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: cl, cluster: {server: "` + server + `"}}]
users: [{name: us, user: {` + user + `}}]
contexts: [{name: c, context: {cluster: cl, user: us, namespace: sandboxes}}]
`
}
