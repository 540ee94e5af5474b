package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	maxPending  = 4096     // entries that wait for a slow store; more are counted, not kept
	maxEntry    = 64 << 10 // bytes of one text
	maxRaw      = 32 << 10 // bytes of one tool input, output or unknown update
	appendBatch = 512
)

// transcript writes entries behind the session's back, in their order. Only
// the end of a run waits for it.
type transcript struct {
	session string
	store   Store
	log     *slog.Logger
	written func() // hears that the store has more; does not block

	writing sync.Mutex // held over a write; taken before mu

	mu      sync.Mutex
	pending []Entry
	missing int
	bell    chan struct{}
}

func newTranscript(session string, store Store, log *slog.Logger) *transcript {
	return &transcript{session: session, store: store, log: log, written: func() {}, bell: make(chan struct{}, 1)}
}

// add never blocks. When the store is that far behind, the entry is dropped and
// the transcript says how many are missing.
func (t *transcript) add(e Entry) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Text, e.Error = cut(e.Text, maxEntry), cut(e.Error, maxEntry)
	e.Input, e.Output = cutRaw(e.Input), cutRaw(e.Output)
	t.mu.Lock()
	if len(t.pending) >= maxPending {
		t.missing++
	} else {
		t.pending = append(t.pending, e)
	}
	t.mu.Unlock()
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// run writes until ctx ends; what is left then is for flush.
func (t *transcript) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.bell:
			_ = t.flush(ctx)
		}
	}
}

// flush writes everything that was added before. What a failing store refuses
// is logged and counted as missing: a transcript must not end a session.
func (t *transcript) flush(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	return t.write(ctx, math.MaxInt)
}

// write writes the next entries, at most so many. The caller holds writing.
func (t *transcript) write(ctx context.Context, most int) error {
	for {
		t.mu.Lock()
		batch := t.pending[:min(len(t.pending), appendBatch, most)]
		most -= len(batch)
		t.pending = t.pending[len(batch):]
		missing := t.missing
		if len(t.pending) == 0 {
			t.pending = nil
		}
		t.mu.Unlock()
		if missing > 0 && len(batch) < appendBatch {
			batch = append(batch[:len(batch):len(batch)], Entry{
				Time: time.Now(), Kind: EntryMissing, Text: plural(missing, "entry is missing here", "entries are missing here"),
			})
		} else {
			missing = 0
		}
		if len(batch) == 0 {
			return nil
		}
		if err := t.store.Append(ctx, t.session, batch...); err != nil {
			t.mu.Lock()
			if missing == 0 {
				t.missing += len(batch)
			} else {
				t.missing += len(batch) - 1
			}
			t.mu.Unlock()
			t.log.LogAttrs(ctx, slog.LevelError, "transcript.failed", logattr.Session(t.session), logattr.Count(len(batch)), logattr.Err(err))
			return err
		}
		t.written()
		if missing > 0 {
			t.mu.Lock()
			t.missing -= missing
			t.mu.Unlock()
		}
	}
}

// cut shortens s to limit bytes on a rune boundary.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// cutRaw replaces JSON that is too large, or is none, by a string of its start.
func cutRaw(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxRaw && (len(raw) == 0 || json.Valid(raw)) {
		return raw
	}
	text, err := json.Marshal(cut(string(raw), maxRaw))
	if err != nil {
		return nil
	}
	return text
}
