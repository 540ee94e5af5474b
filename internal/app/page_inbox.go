package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/notice"
)

// Bounds of the inbox on the page.
const (
	inboxPage  = 100  // notices that a subscription begins with
	inboxDirty = 500  // notices that change in one window; with more all begin again
	inboxScan  = 5000 // notices that are looked at for a page of those that may be seen
)

// inboxTopic is the inboxes of all agents. It sees what this process does to them.
type inboxTopic struct {
	crowd

	p *page

	outside sync.Mutex
	notices map[string]bool
	agents  map[string]bool
	unknown bool
}

func newInboxTopic(p *page) *inboxTopic {
	t := &inboxTopic{
		crowd: newCrowd(p, pageserver.Topic{Kind: pageserver.Inbox}), p: p,
		notices: map[string]bool{}, agents: map[string]bool{},
	}
	return t
}

func (t *inboxTopic) mark(c notice.Change) {
	t.outside.Lock()
	for _, id := range c.IDs {
		if len(t.notices) < inboxDirty {
			t.notices[id] = true
		} else {
			t.unknown = true
		}
	}
	t.unknown = t.unknown || c.Unknown
	t.agents[c.Agent] = true
	t.outside.Unlock()
	t.ring()
}

func (t *inboxTopic) run(ctx context.Context) {
	defer close(t.over)
	defer t.p.agents.Inbox.Observe(t.mark)()
	t.attend(ctx, t.flush, t.flush)
}

// inboxState is what a subscription to the inbox begins with.
type inboxState struct {
	Notices []notice.Record `json:"notices"`
	Next    string          `json:"next,omitempty"`
	Agents  []notice.Status `json:"agents"`
}

// join implements pageTopic.
func (t *inboxTopic) join(ctx context.Context, to *pageserver.Stream) error {
	return t.admit(ctx, to, func(context.Context) (_ any, err error) {
		var s inboxState
		ctx, cancel := context.WithTimeout(ctx, pageRead)
		defer cancel()
		if s.Agents, err = t.p.inboxes(ctx, to.May); err != nil {
			return nil, err
		}
		page, err := t.p.notices(ctx, notice.Query{Newest: true, Limit: inboxPage}, to.May)
		s.Notices, s.Next = page.Records, page.Next
		return s, err
	})
}

// flush tells of what has changed.
func (t *inboxTopic) flush(ctx context.Context) {
	t.outside.Lock()
	notices, agents, unknown := t.notices, t.agents, t.unknown
	t.notices, t.agents, t.unknown = map[string]bool{}, map[string]bool{}, false
	t.outside.Unlock()
	if unknown {
		t.gap()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	for _, id := range slices.Sorted(maps.Keys(notices)) {
		r, err := t.p.agents.Inbox.Get(ctx, "", id)
		if err == nil {
			t.push("inbox.notice", map[string]any{"notice": r}, r.Agent)
		} else if !errors.Is(err, notice.ErrNotFound) {
			t.gap()
			return
		}
	}
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		s, err := t.p.agents.Inbox.Status(ctx, id)
		switch {
		case err == nil:
			t.push("inbox.agent", map[string]any{"status": s}, id)
		case errors.As(err, new(*notice.UnknownAgentError)):
			t.push("inbox.agent_removed", map[string]any{"agent": id}, id)
		default:
			t.gap()
			return
		}
	}
}

// inboxes are the states of the inboxes that may be seen, by agent.
func (p *page) inboxes(ctx context.Context, may func(string) bool) ([]notice.Status, error) {
	agents, err := p.agents.Inbox.Agents(ctx)
	if err != nil {
		return nil, err
	}
	all := []notice.Status{}
	for _, id := range agents {
		if !may(id) {
			continue
		}
		s, err := p.agents.Inbox.Status(ctx, id)
		if errors.As(err, new(*notice.UnknownAgentError)) {
			continue // it has just gone
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// notices is a page of those that may be seen. For whoever may not see all it may
// hold some more than the limit, so that none is passed over; and of very many that
// may not be seen it may be short, or empty, and still have a next.
func (p *page) notices(ctx context.Context, q notice.Query, may func(string) bool) (notice.Page, error) {
	out := notice.Page{Records: []notice.Record{}}
	want := q.Limit
	for seen := 0; ; {
		page, err := p.agents.Inbox.List(ctx, q)
		if err != nil {
			return out, err
		}
		for i := range page.Records {
			if may(page.Records[i].Agent) {
				out.Records = append(out.Records, page.Records[i])
			}
		}
		seen += len(page.Records)
		out.Next, q.After = page.Next, page.Next
		if page.Next == "" || len(out.Records) >= want || seen >= inboxScan {
			return out, nil
		}
	}
}
