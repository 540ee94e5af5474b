package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// faultsEnv is the number of faults of TestFaults; 1,000 takes a minute or two.
const faultsEnv = "OSSICLE_FAULTS"

func faults(t *testing.T) int {
	t.Helper()
	text := os.Getenv(faultsEnv)
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", faultsEnv, err)
	}
	return n
}

// W-050, M-14, M-17: after many faults at any point the watch works, or has said
// why not, and no goroutine, child or descriptor is left. Not parallel, because
// it counts what the process has.
func TestFaults(t *testing.T) {
	n := faults(t)
	t.Run("stdio", func(t *testing.T) { faultLoop(t, n, stdioSpec(""), stdioFaults()) })
	t.Run("http", func(t *testing.T) {
		f := newFake("")
		var trouble atomic.Int32 // requests yet to be refused
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if trouble.Add(-1) >= 0 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			f.ServeHTTP(w, r)
		}))
		faultLoop(t, n/2, Spec{Name: "srv", URL: srv.URL}, []fault{
			func(*Server, *rand.Rand) { srv.CloseClientConnections() },
			func(*Server, *rand.Rand) { f.endListens() },
			func(_ *Server, rnd *rand.Rand) { trouble.Store(int32(rnd.IntN(3))); srv.CloseClientConnections() },
		})
		srv.Close()
	})
}

// fault breaks something.
type fault func(s *Server, rnd *rand.Rand)

func stdioFaults() []fault {
	call := func(tool string) fault {
		return func(s *Server, _ *rand.Rand) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, _ = s.CallTool(ctx, tool, nil)
		}
	}
	return []fault{call("die"), call("end-listens"), kill, kill, kill}
}

// kill ends the child that is there, perhaps one that is just being connected.
func kill(s *Server, _ *rand.Rand) {
	s.mu.Lock()
	cur := s.cur
	s.mu.Unlock()
	if cur != nil {
		cur.proc.Kill()
	}
}

func faultLoop(t *testing.T, n int, spec Spec, kinds []fault) {
	goroutines := goleak.IgnoreCurrent()
	fds, children := openFDs(t), childPIDs(t)
	o := quick()
	o.RestartBudget = 1 << 20
	o.Listen.Backoff = time.Millisecond
	p, err := NewPool([]Spec{spec}, o)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server("srv")
	rnd := rand.New(rand.NewPCG(uint64(n), 7))
	ears := []*ear{newEar(), newEar()}
	for i, e := range ears {
		if _, err := s.Subscribe(ctxOf(t), fmt.Sprintf("a:/%d", i), e); err != nil {
			t.Fatal(err)
		}
	}
	failed := 0
	for range n {
		done := make(chan struct{})
		go func() { // something is always under way when it breaks
			defer close(done)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
			defer cancel()
			_, _ = s.Read(ctx, "a:/0", nil)
			_, _ = s.CallTool(ctx, "touch", json.RawMessage(`{"uri":"a:/0"}`))
		}()
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond) // a random point
		kinds[rnd.IntN(len(kinds))](s, rnd)
		<-done
		for i := range ears {
			failed += recovered(t, s, &ears[i], fmt.Sprintf("a:/%d", i))
		}
	}
	p.Close()
	t.Logf("%d faults, %d failures that were told", n, failed)
	// What ends by itself, as a guard of processes or the other side of a connection
	// does, takes a moment.
	deadline := time.Now().Add(hang)
	leaked := goleak.Find(goroutines)
	for leaked != nil && time.Now().Before(deadline) {
		leaked = goleak.Find(goroutines)
	}
	if leaked != nil {
		t.Error(leaked)
	}
	for (len(openFDs(t)) > len(fds) || len(childPIDs(t)) > len(children)) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if now := openFDs(t); len(now) > len(fds) {
		t.Errorf("descriptors %q, before %q", now, fds)
	}
	if now := childPIDs(t); len(now) > len(children) {
		t.Errorf("children %v, before %v", now, children)
	}
}

// recovered announces a change until the watch hears it. A watch that failed
// said so; it is made again.
func recovered(t *testing.T, s *Server, e **ear, uri string) (failed int) {
	t.Helper()
	for len((*e).updated) > 0 {
		<-(*e).updated
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, _ = s.CallTool(ctx, "touch", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri)))
		select {
		case <-(*e).updated:
			cancel()
			return failed
		case <-(*e).failed:
			failed++
			*e = newEar()
			_, err := s.Subscribe(ctx, uri, *e)
			for err != nil && ctx.Err() == nil {
				_, err = s.Subscribe(ctx, uri, *e)
			}
		case <-time.After(20 * time.Millisecond):
		}
		cancel()
	}
	buf := make([]byte, 1<<20)
	t.Fatalf("the watch of %s neither recovered nor failed\n%s", uri, buf[:runtime.Stack(buf, true)])
	return 0
}

// openFDs are the descriptors of this process, by what they lead to, but for those
// that the runtime makes when it needs them first.
func openFDs(t *testing.T) (all []string) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	for _, fd := range list {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if !strings.HasPrefix(to, "anon_inode:[event") {
			all = append(all, fd.Name()+" "+to)
		}
	}
	return all
}

func childPIDs(t *testing.T) []string {
	t.Helper()
	var out []string
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		out = append(out, strings.Fields(string(b))...)
	}
	return out
}
