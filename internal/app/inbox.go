package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// How a notice that the inbox would not take is tried again.
const (
	postRetryMin = time.Second
	postRetryMax = 30 * time.Second
)

// metaKind is the key of a notice's meta that keeps what a watch says it is.
const metaKind = "kind"

// restoredTitle names the notice that lists restored watches.
const restoredTitle = "restored"

// inboxSink puts what watches say into the inbox of their agent before anything
// else happens to it (specification D-1). An inbox that fails is asked again
// until the watches end: meanwhile lines gather in the watches and are not lost.
type inboxSink struct {
	inbox *notice.Inbox
	agent string
	log   *slog.Logger
	// told hears what the inbox has taken, or will never take. Nil is nobody.
	told func(ctx context.Context, n watch.Notice, err error)
}

// Notify implements watch.Sink.
func (s *inboxSink) Notify(ctx context.Context, n watch.Notice) error {
	msg := fromWatch(s.agent, n)
	for delay := postRetryMin; ; delay = min(2*delay, postRetryMax) {
		_, err := s.inbox.Post(ctx, msg)
		if err == nil || final(err) {
			if s.told != nil {
				s.told(ctx, n, err)
			}
			return err
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "inbox failed; the notice waits", logattr.Watch(n.Watch), logattr.Delay(delay), logattr.Err(err))
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
	}
}

// final reports whether posting again cannot help.
func final(err error) bool {
	_, invalid := errors.AsType[*notice.InvalidError](err)
	_, unknown := errors.AsType[*notice.UnknownAgentError](err)
	return invalid || unknown
}

// fromWatch addresses a watch's notice. Its key is the same however often it is
// posted.
func fromWatch(agentID string, n watch.Notice) notice.Notice {
	title := n.Watch
	if n.Kind == watch.KindRestored {
		title = restoredTitle
	}
	sum := sha256.Sum256([]byte(n.Text()))
	meta := map[string]string{metaKind: string(n.Kind)}
	if n.URI != "" && len(n.URI) < notice.MaxMetaLen/2 {
		meta[notice.MetaURI] = n.URI
	}
	return notice.Notice{
		Agent: agentID, Source: notice.SourceWatch, Title: title, Text: n.Text(), Meta: meta, CreatedAt: n.Time,
		DedupeKey: fmt.Sprintf("watch %s %s %d %s", n.Kind, n.Watch, n.Time.UnixNano(), hex.EncodeToString(sum[:8])),
	}
}

// toAgent is a notice as a session takes it, cut to what it takes.
func toAgent(n notice.Notice) agent.Notice {
	out := agent.Notice{ID: n.ID, Source: string(n.Source), Name: n.Title, URI: n.Meta[notice.MetaURI], Text: n.Text, Time: n.CreatedAt}
	if over := len(out.Text) + len(out.Name) + len(out.URI) - agent.MaxNotice; over > 0 {
		out.Text = out.Text[:len(out.Text)-over]
	}
	return out
}

// frame writes the message of a run: the frame of the inbox, whose texts stay
// data (specification N-11, D-17).
func frame(notices []agent.Notice, aside bool) string {
	all := make([]notice.Notice, len(notices))
	for i, n := range notices {
		all[i] = notice.Notice{ID: n.ID, Source: notice.Source(n.Source), Title: n.Name, Text: n.Text, CreatedAt: n.Time}
		if n.URI != "" {
			all[i].Meta = map[string]string{notice.MetaURI: n.URI}
		}
	}
	if aside {
		return notice.Aside(all...)
	}
	return notice.Frame(all...)
}
