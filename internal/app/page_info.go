package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

const notFound = http.StatusNotFound

// info is a session with everything that the page shows of it.
func (p *page) info(ctx context.Context, id string) (SessionInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	var info SessionInfo
	if one := p.agents.Agent(id); one != nil {
		info = SessionInfo{Status: one.Session.Status(), Running: true, Engine: engineOf(one), Watches: one.Client.Watches.List(), Asked: one.Session.Questions()}
		slices.SortFunc(info.Asked, byID)
	} else {
		m, err := p.api.meta(ctx, id)
		if err != nil {
			return SessionInfo{}, err
		}
		info = p.api.info(m)
	}
	if status, err := p.agents.Inbox.Status(ctx, id); err == nil {
		info.Inbox = &status
	}
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
