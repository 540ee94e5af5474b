package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/sse"
)

// traffic is what writers and subscribers do to a site, and what they saw.
type traffic struct {
	site *site
	http *http.Client // of the writers

	mu           sync.Mutex
	faults       []string         // what must never happen
	acknowledged map[string]int64 // ids of events, by token
}

func newTraffic(s *site) *traffic {
	return &traffic{site: s, http: &http.Client{Timeout: 10 * time.Second}, acknowledged: map[string]int64{}}
}

func (tr *traffic) fault(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.faults = append(tr.faults, fmt.Sprintf(format, args...))
}

// padding makes events large enough that a subscriber who stalls fills what the
// kernel takes for it.
var padding = strings.Repeat("x", 3000)

// message is the data of an event.
type message struct {
	Token string `json:"token"`
	Pad   string `json:"pad"`
}

// publish posts batches until stop, with the same key again until each is
// acknowledged.
func (tr *traffic) publish(ctx context.Context, stop <-chan struct{}, name string, pause time.Duration) {
	topics := []string{"audit.a", "audit.b", "news.a", "news.b", "first.a", "first.b"}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(2 * pause)):
		}
		topic := topics[rand.IntN(len(topics))]
		var batch []map[string]any
		var tokens []string
		for k := range 1 + rand.IntN(20) {
			tokens = append(tokens, fmt.Sprintf("%s-%d-%d", name, n, k))
			batch = append(batch, map[string]any{"data": message{tokens[k], padding}, "key": name})
		}
		body, err := json.Marshal(batch)
		if err != nil {
			tr.fault("%v", err)
			return
		}
		for {
			ids, err := tr.postTo(ctx, tr.site.anywhere(), topic, fmt.Sprintf("%s-%d", name, n), body)
			if err == nil && len(ids) == len(tokens) {
				tr.acknowledge(tokens, ids)
				break
			}
			if err == nil {
				err = fmt.Errorf("%d receipts for %d events", len(ids), len(tokens))
			}
			var refused *refusedError
			if errors.As(err, &refused) || ctx.Err() != nil {
				tr.fault("publish %s-%d: %v", name, n, err)
				return
			}
			time.Sleep(rand.N(200 * time.Millisecond)) // what is away comes back; nothing tells when
		}
	}
}

func (tr *traffic) acknowledge(tokens []string, ids []int64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, token := range tokens {
		tr.acknowledged[token] = ids[i]
	}
}

// refusedError is an answer that trying again will not change.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return e.status }

func (tr *traffic) postTo(ctx context.Context, addr, topic, key string, body []byte) ([]int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/topics/"+topic+"/events", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+tr.site.token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := tr.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 && resp.StatusCode < 500 {
		return nil, &refusedError{fmt.Sprintf("%s: %s", resp.Status, text)}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var answer struct {
		Receipts []feed.Receipt `json:"receipts"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	ids := make([]int64, len(answer.Receipts))
	for i, r := range answer.Receipts {
		ids[i] = r.ID
	}
	return ids, nil
}

// reader is a subscriber that writes down what it gets.
type reader struct {
	name     string
	site     *site
	patterns []string
	stalls   bool // now and then it reads nothing for a while

	goal   atomic.Int64 // where it may stop, once that is known
	calm   atomic.Bool  // no more stalls
	http   *http.Client
	start  feed.Position
	last   feed.Position
	got    []received
	faults []string
	// What has happened to it.
	connections, stalled int
	gaps                 atomic.Int64
	ended                string // how the last connection did
}

func newReader(name string, s *site, stalls bool, patterns ...string) *reader {
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		// A small window, so that a stall is soon felt at the other end.
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<10) })
	}}
	return &reader{
		name: name, site: s, patterns: patterns, stalls: stalls,
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}},
	}
}

// join takes the first connection and learns where the log is.
func (r *reader) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := r.connect(ctx, r.site.front)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	in := sse.NewReader(body, 0)
	in.All = true
	for in.LastID() == "" {
		if _, err := in.Next(); err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
	r.start, err = feed.ParsePosition(in.LastID())
	r.last = r.start
	return err
}

func (r *reader) connect(ctx context.Context, addr string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/events?"+url.Values{"topic": r.patterns}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+r.site.token)
	if r.last.ID > 0 || r.last.Epoch != "" {
		req.Header.Set("Last-Event-ID", r.last.String())
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	r.connections++
	return resp.Body, nil
}

// run reads, with another replica every few seconds, until it has reached its
// goal.
func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil && !r.done() && len(r.faults) == 0 {
		if err := r.follow(ctx, r.site.anywhere()); err != nil {
			r.ended = err.Error()
			time.Sleep(rand.N(200 * time.Millisecond)) // what is away comes back; nothing tells when
		}
	}
	if !r.done() && len(r.faults) == 0 {
		r.faults = append(r.faults, fmt.Sprintf("reached only %s of %d; the last connection: %s", r.last, r.goal.Load(), r.ended))
	}
}

func (r *reader) done() bool {
	goal := r.goal.Load()
	return goal != 0 && r.last.ID >= goal
}

// follow reads one connection for a while.
func (r *reader) follow(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second+rand.N(5*time.Second))
	defer cancel()
	body, err := r.connect(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	in := sse.NewReader(body, 0)
	stall := time.Now().Add(rand.N(3 * time.Second))
	for !r.done() {
		e, err := in.Next()
		if err != nil {
			r.ended = err.Error()
			return nil //nolint:nilerr // the end of the connection, of which there are many
		}
		if err := r.take(e); err != nil {
			r.faults = append(r.faults, fmt.Sprintf("%v in %+v", err, e))
			return err
		}
		if r.stalls && !r.calm.Load() && time.Now().After(stall) {
			r.stalled++
			time.Sleep(500*time.Millisecond + rand.N(time.Second)) // the stall is what is tested
			stall = time.Now().Add(rand.N(3 * time.Second))
		}
	}
	return nil
}

func (r *reader) take(e sse.Event) error {
	at, err := feed.ParsePosition(e.ID)
	if err != nil {
		return err
	}
	if at.Epoch != r.start.Epoch {
		return fmt.Errorf("another log: %s", at)
	}
	if e.Type == feed.GapType {
		var g feed.Gap
		if err := json.Unmarshal(e.Data, &g); err != nil {
			return err
		}
		if g.To != at.ID {
			return fmt.Errorf("a gap up to %d has the id %s", g.To, at)
		}
		r.gaps.Add(1)
		r.got = append(r.got, received{gap: &g})
	} else {
		var got feed.Event
		if err := json.Unmarshal(e.Data, &got); err != nil {
			return err
		}
		if got.ID != at.ID || got.Epoch != at.Epoch {
			return fmt.Errorf("the event says %s-%d", got.Epoch, got.ID)
		}
		r.got = append(r.got, received{committed: committed{got.ID, got.Topic, tokenOf(got.Data)}})
	}
	r.last = at
	return nil
}

// tokenOf finds the token in the data of an event, however it is wrapped.
func tokenOf(data []byte) string {
	_, rest, _ := bytes.Cut(data, []byte(`"token"`))
	_, rest, _ = bytes.Cut(rest, []byte(`"`))
	token, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(token)
}
