package feedserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/jsonx"
)

// servePoll answers with the events that are there, or the next ones within the
// time that the client waits.
func (s *Server) servePoll(w http.ResponseWriter, r *http.Request, want wanted) {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil || wait < 0 || wait > maxWait {
		s.refuse(w, http.StatusBadRequest, fmt.Sprintf("wait is a time from 0s to %v, as in 25s", maxWait))
		return
	}
	if r.Method == http.MethodHead {
		jsonHead(w)
		return
	}
	if !s.enter() {
		s.refuseForNow(w, endingDetail)
		return
	}
	defer s.handlers.Done()
	sub := s.subscribe(w, want, nil)
	if sub == nil {
		return
	}
	defer sub.Close()
	s.counts.polls.Add(1)
	defer s.counts.polls.Add(-1)
	if p := want.principal; p != nil && !p.Expires.IsZero() {
		wait = min(wait, time.Until(p.Expires))
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime+wait)
	defer cancel()
	defer s.atEnding(cancel)()
	b, err := next(ctx, sub, wait)
	var slow *feed.SlowError
	switch {
	case errors.As(err, &slow):
		b = feed.Batch{Position: slow.Position}
	case storeFailed(err) && ctx.Err() == nil:
		s.refuseForNow(w, "the log cannot be read now; try again in a moment")
		return
	case err != nil:
		b = feed.Batch{Position: sub.Position()}
	}
	s.counts.events.Add(int64(len(b.Items)))
	jsonHead(w)
	_, _ = w.Write(appendAnswer(nil, b))
}

// next returns what is there, or the next that comes within the time, without
// waiting for more behind it. To read what is there takes what it takes: a client
// that does not wait must not be told for ever that there is nothing.
func next(ctx context.Context, sub *feed.Subscription, wait time.Duration) (feed.Batch, error) {
	b, _, err := sub.Take(ctx)
	if err == nil && b.Gap == nil && len(b.Items) == 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		b, err = sub.Next(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return feed.Batch{Position: sub.Position()}, nil
		}
	}
	size := 0
	for _, it := range b.Items {
		size += len(it.Data)
	}
	for err == nil && b.Gap == nil && size < answerBytes {
		more, behind, err := sub.Poll(nil)
		if err != nil || behind || more.Gap != nil || len(more.Items) == 0 {
			break // it is there the next time too
		}
		for _, it := range more.Items {
			size += len(it.Data)
		}
		b.Items, b.Position = append(b.Items, more.Items...), more.Position
	}
	return b, err
}

// appendAnswer appends the answer to a long poll.
func appendAnswer(b []byte, batch feed.Batch) []byte {
	b = append(b, `{"events":[`...)
	for i, it := range batch.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEvent(b, it.Event)
	}
	b = jsonx.AppendString(append(b, `],"position":`...), batch.Position.String())
	if batch.Gap != nil {
		if gap, err := json.Marshal(batch.Gap); err == nil {
			b = append(append(b, `,"gap":`...), gap...)
		}
	}
	return append(b, "}\n"...)
}

func jsonHead(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}
