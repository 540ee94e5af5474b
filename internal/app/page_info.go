package app

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/ossicle/ossicle/agent"
)

const notFound = http.StatusNotFound

// info is a session with everything that the page shows of it.
func (p *page) info(ctx context.Context, id string) (SessionInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	info, err := p.brief(ctx, id)
	if err != nil {
		return SessionInfo{}, err
	}
	if one := p.agents.Agent(id); one != nil {
		info.Watches = one.Client.Watches.List()
	}
	if status, err := p.agents.Inbox.Status(ctx, id); err == nil {
		info.Inbox = &status
	}
	return info, nil
}

// brief is a session without what is around it. Of one that runs here it asks no
// store.
func (p *page) brief(ctx context.Context, id string) (SessionInfo, error) {
	one := p.agents.Agent(id)
	if one == nil {
		m, err := p.api.meta(ctx, id)
		return p.api.info(ctx, m), err
	}
	info := p.api.info(ctx, agent.Meta{ID: id})
	info.Asked = one.Session.Questions()
	slices.SortFunc(info.Asked, byID)
	return info, nil
}

// history is the attachment report of a session, nil without one.
func (p *page) history(ctx context.Context, id string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	report, err := p.agents.Report(ctx, id)
	if errors.Is(err, ErrNoReport) {
		return nil, nil //nolint:nilnil // there is nothing to show
	}
	return report, err
}
