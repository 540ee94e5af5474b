package shim_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// added is what the relay adds at the median, in one run with and without it,
// turn by turn, so that both see the same machine.
func added(tb testing.TB, rounds int, direct, through func() error) (without, with time.Duration) {
	tb.Helper()
	one := func(do func() error) time.Duration {
		began := time.Now()
		if err := do(); err != nil {
			tb.Fatal(err)
		}
		return time.Since(began)
	}
	for range 20 { // warm
		one(direct)
		one(through)
	}
	var ds, ts []time.Duration
	for range rounds {
		ds, ts = append(ds, one(direct)), append(ts, one(through))
	}
	slices.Sort(ds)
	slices.Sort(ts)
	return ds[rounds/2], ts[rounds/2]
}

const aCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say","arguments":{"text":"hello"}}}`

// stdioPair asks a server directly, and one behind a relay in a process of its
// own, as hosts run it.
func stdioPair(tb testing.TB) (direct, through func() error) {
	tb.Helper()
	ask := func(name string) func() error {
		cmd := exec.CommandContext(tb.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), helperEnv+"="+name)
		in, err := cmd.StdinPipe()
		if err != nil {
			tb.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		r := bufio.NewReader(out)
		return func() error {
			if _, err := io.WriteString(in, aCall+"\n"); err != nil {
				return err
			}
			_, err := r.ReadString('\n')
			return err
		}
	}
	return ask("lines"), ask("relay")
}

func httpPair(t testing.TB) (direct, through func() error) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(upstream.Close)
	base, _ := relayed(t, upstream.URL)
	c := client(t)
	ask := func(url string) func() error {
		return func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(aCall))
			if err != nil {
				return err
			}
			res, err := c.Do(req)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, res.Body)
			return errOr(err, res.Body.Close())
		}
	}
	return ask(upstream.URL), ask(base)
}

func errOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// The relay adds at most a millisecond at the median. A machine that is busy with
// something else has many tries.
//
// M-19.
func TestRelayAddsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	stdioDirect, stdioThrough := stdioPair(t)
	httpDirect, httpThrough := httpPair(t)
	for name, pair := range map[string][2]func() error{"stdio": {stdioDirect, stdioThrough}, "http": {httpDirect, httpThrough}} {
		var last time.Duration
		for range 20 {
			without, with := added(t, 300, pair[0], pair[1])
			t.Logf("%s: %s direct, %s through the relay", name, without, with)
			if last = with - without; last <= time.Millisecond {
				break
			}
		}
		if last > time.Millisecond {
			t.Errorf("%s: the relay adds %s at the median", name, last)
		}
	}
}

// BenchmarkRelay tells the medians of one run: ns/op is of both questions.
func BenchmarkRelay(b *testing.B) {
	for name, pair := range map[string]func(testing.TB) (direct, through func() error){"stdio": stdioPair, "http": httpPair} {
		b.Run(name, func(b *testing.B) {
			direct, through := pair(b)
			b.ResetTimer()
			without, with := added(b, max(b.N, 10), direct, through)
			b.ReportMetric(float64(without.Nanoseconds()), "direct-ns")
			b.ReportMetric(float64(with.Nanoseconds()), "relayed-ns")
		})
	}
}
