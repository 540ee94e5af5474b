package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/supervise"
	"github.com/ossicle/ossicle/notice"
)

// Listening is what becomes of the events of a topic that an agent listens to
// (specification F-30). What it costs in tokens is bounded whatever comes.
type Listening string

// The policies.
const (
	ListenWake   Listening = "wake"   // a new turn now
	ListenDigest Listening = "digest" // one block before the next user turn
	ListenSilent Listening = "silent" // no turn; the agent asks for the block itself
)

// TopicSpec says which topics an agent listens to, and how.
type TopicSpec struct {
	Topic  string // a name, or a beginning with * behind it
	Policy Listening
}

// ParseTopicSpec reads TOPIC or TOPIC=POLICY.
func ParseTopicSpec(text string) (TopicSpec, error) {
	topic, policy, given := strings.Cut(text, "=")
	s := TopicSpec{topic, Listening(policy)}
	if !given {
		s.Policy = ListenWake
	}
	if _, err := feed.ParseFilter(topic); err != nil || topic == "" {
		return s, fmt.Errorf("topic %q: %w", topic, errors.Join(err, errTopicForm))
	}
	switch s.Policy {
	case ListenWake, ListenDigest, ListenSilent:
		return s, nil
	}
	return s, fmt.Errorf("topic %q: %q is none of wake, digest, silent", topic, policy)
}

var errTopicForm = errors.New("the form is TOPIC or TOPIC=POLICY")

// Times of listeners.
const (
	// gatherTime is for how long events are gathered from the first one on, so
	// that a burst is one notice.
	gatherTime = 200 * time.Millisecond
	// wakeRest is the least time between two notices of one listener.
	wakeRest        = 3 * time.Second
	listenRetry     = time.Second
	listenRetryMost = 30 * time.Second
)

// toolTopicDigest is the tool by which an agent asks for what came silently.
const toolTopicDigest = "topic_digest"

// listeners are all that one agent listens to.
type listeners struct {
	hub   *feed.Hub
	inbox *notice.Inbox
	agent string
	log   *slog.Logger
	kept  *positions
	all   []*listener
}

// listener follows the topics of one pattern.
type listener struct {
	*listeners

	spec   TopicSpec
	filter feed.Filter

	mu     sync.Mutex
	digest *feed.Digest
	read   feed.Position           // up to here events are in the digest
	again  context.CancelCauseFunc // has it begin anew from what was kept
}

// newListeners makes the listeners of an agent. Where each had come to is in the
// file at path.
func newListeners(hub *feed.Hub, inbox *notice.Inbox, agentID, path string, specs []TopicSpec, log *slog.Logger) (*listeners, error) {
	kept, err := openPositions(path)
	if err != nil {
		return nil, err
	}
	ls := &listeners{hub: hub, inbox: inbox, agent: agentID, log: log, kept: kept}
	for _, s := range specs {
		filter, err := feed.ParseFilter(s.Topic)
		if err != nil {
			return nil, fmt.Errorf("listen to %s: %w", s.Topic, err)
		}
		ls.all = append(ls.all, &listener{listeners: ls, spec: s, filter: filter})
	}
	return ls, nil
}

// run listens until ctx ends.
func (ls *listeners) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range ls.all {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
}

// run follows the topics, and begins anew from the kept position when something
// failed on the way: what was not told is read once more.
func (l *listener) run(ctx context.Context) {
	for wait := listenRetry; ; wait = min(2*wait, listenRetryMost) {
		begun := time.Now()
		err := l.follow(ctx)
		if ctx.Err() != nil || errors.Is(err, feed.ErrStopped) {
			return
		}
		if errors.Is(err, errAgain) || time.Since(begun) > listenRetryMost {
			wait = listenRetry
		}
		l.log.LogAttrs(ctx, slog.LevelWarn, "a listener begins anew", logattr.Session(l.agent), logattr.URI(feed.TopicURI(l.spec.Topic)), logattr.Err(err))
		if !errors.Is(err, errAgain) && !supervise.Sleep(ctx, wait) {
			return
		}
	}
}

// errAgain begins anew because what was told did not arrive, or in part before.
var errAgain = errors.New("what was told is told anew")

// subscribe begins behind what was told. again has it begin anew.
func (l *listener) subscribe(again context.CancelCauseFunc) (*feed.Subscription, error) {
	want := feed.Subscribe{Filter: l.filter, Patient: true}
	if p, ok := l.kept.get(l.spec.Topic); ok {
		want.From = &p
	}
	sub, err := l.hub.Subscribe(want)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	from := sub.Position()
	if want.From == nil { // from here on nothing is lost, also if we are killed before the first event
		if err := l.kept.put(l.spec.Topic, from); err != nil {
			sub.Close()
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.digest, l.again, l.read = feed.NewDigest(nil), again, from
	return sub, nil
}

func (l *listener) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub, err := l.subscribe(cancel)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		err := l.take(ctx, sub)
		if err == nil && l.spec.Policy == ListenWake {
			err = l.wake(ctx, sub)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
	}
}

// take puts the next batch into the digest.
func (l *listener) take(ctx context.Context, sub *feed.Subscription) error {
	batch, err := sub.Next(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.digest == nil {
		return errAgain
	}
	if batch.Gap != nil {
		l.digest.AddGap(*batch.Gap)
	}
	for _, it := range batch.Items {
		l.digest.Add(it.Event)
	}
	l.read = batch.Position
	return nil
}

// wake gathers what comes for a moment, puts it into the agent's inbox as one
// notice, and rests.
func (l *listener) wake(ctx context.Context, sub *feed.Subscription) error {
	gather, cancel := context.WithTimeout(ctx, gatherTime)
	for {
		if err := l.take(gather, sub); err != nil {
			if gather.Err() != nil {
				break
			}
			cancel()
			return err
		}
	}
	cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	text, read := l.render()
	if text == "" {
		return l.kept.put(l.spec.Topic, read)
	}
	if err := l.post(ctx, text, read); err != nil {
		return fmt.Errorf("tell agent: %w", err)
	}
	supervise.Sleep(ctx, wakeRest)
	return nil
}

// metaTo is where the events of a notice end.
const metaTo = "feed_to"

// post puts a notice of all events from the kept position on into the inbox. One
// that begins there and was posted in an earlier life, which died before it kept
// the next position, is not posted again: what comes behind it is read anew.
func (l *listener) post(ctx context.Context, text string, read feed.Position) error {
	from, _ := l.kept.get(l.spec.Topic)
	receipt, err := l.inbox.Post(ctx, notice.Notice{
		Agent: l.agent, Source: notice.SourceFeed, Title: l.spec.Topic, Text: text,
		Meta:      map[string]string{notice.MetaURI: feed.TopicURI(l.spec.Topic), metaTo: read.String()},
		DedupeKey: "feed:" + l.spec.Topic + ":" + from.String(),
	})
	if err != nil {
		return err
	}
	if receipt.Added {
		return l.kept.put(l.spec.Topic, read)
	}
	known, err := l.inbox.Get(ctx, l.agent, receipt.ID)
	if err != nil && !errors.Is(err, notice.ErrNotFound) {
		return err
	}
	if to, perr := feed.ParsePosition(known.Meta[metaTo]); err == nil && perr == nil {
		read = to
	}
	return errors.Join(l.kept.put(l.spec.Topic, read), errAgain)
}

func (l *listener) render() (text string, read feed.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.digest == nil {
		return "", l.read
	}
	return l.digest.Render(), l.read
}

// pull hands over the blocks of the listeners with the policy digest, for a turn
// that a person begins. A block whose turn does not complete is told again.
func (ls *listeners) pull() []agent.Waiting {
	var waiting []agent.Waiting
	for _, l := range ls.all {
		if l.spec.Policy != ListenDigest {
			continue
		}
		text, read := l.render()
		if text == "" {
			continue
		}
		waiting = append(waiting, agent.Waiting{Ack: l.told(read), Notice: agent.Notice{
			ID: "feed:" + notice.NewID(), Source: string(notice.SourceFeed), Name: l.spec.Topic, URI: feed.TopicURI(l.spec.Topic), Text: text, Time: time.Now(),
		}})
	}
	return waiting
}

// told keeps the position when the turn has shown what comes before it.
func (l *listener) told(read feed.Position) func(agent.Ack) {
	return func(a agent.Ack) {
		switch a.State {
		case agent.AckSeen:
			if err := l.kept.put(l.spec.Topic, read); err != nil {
				l.log.LogAttrs(context.Background(), slog.LevelWarn, "a listener's place is not kept", logattr.Session(l.agent), logattr.Err(err))
			}
		case agent.AckUndelivered, agent.AckWritten: // nobody knows that it was read
			l.beginAnew()
		case agent.AckWoken: // what is not over says nothing
		}
	}
}

func (l *listener) beginAnew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again != nil {
		l.again(errAgain)
		l.again, l.digest = nil, nil
	}
}

// tools are those of the listeners with the policy silent.
func (ls *listeners) tools() []agent.Tool {
	var silent []*listener
	var names []string
	for _, l := range ls.all {
		if l.spec.Policy == ListenSilent {
			silent, names = append(silent, l), append(names, l.spec.Topic)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return []agent.Tool{{
		Name: toolTopicDigest, ReadOnly: true,
		Description: "What happened on the topics that you hear of only when you ask, since you last asked: " + strings.Join(names, ", "),
		InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Call: func(context.Context, json.RawMessage) (agent.ToolResult, error) {
			var blocks []string
			for _, l := range silent {
				text, read := l.render()
				if text == "" {
					continue
				}
				blocks = append(blocks, notice.Element(notice.Notice{Source: notice.SourceFeed, Title: l.spec.Topic, Text: text}))
				if err := l.kept.put(l.spec.Topic, read); err != nil {
					return agent.ToolResult{}, err
				}
			}
			if len(blocks) == 0 {
				return agent.ToolResult{Text: "nothing since you last asked"}, nil
			}
			return agent.ToolResult{Text: strings.Join(blocks, "\n")}, nil
		},
	}}
}
