package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
)

const (
	sessionURI = "ossicle://session/"
	jsonMIME   = "application/json"
)

// SignalsURI is the resource of the unread signals of whoever reads it.
func SignalsURI(session string) string { return sessionURI + session + "/signals" }

// signalSource makes the session of a seat resources (specification S-10): each
// can be read and watched by the same URI.
type signalSource struct{ seat *Seat }

// SignalSource returns the resources of the agent that sits in a seat.
func SignalSource(s *Seat) listen.Source { return signalSource{s} }

// Owns implements listen.Source.
func (signalSource) Owns(uri string) bool { return strings.HasPrefix(uri, sessionURI) }

// List implements listen.Source.
func (s signalSource) List(context.Context) (listen.Listing, error) {
	l := listen.Listing{Templates: []listen.Template{
		{URITemplate: sessionURI + "{session}/signals", Name: "signals", MIMEType: jsonMIME, Description: "Your unread signals, an array."},
		{URITemplate: sessionURI + "{session}/inbox/{agent}", Name: "inbox", MIMEType: jsonMIME, Description: "The same by your agent id. Nobody reads another's."},
		{URITemplate: sessionURI + "{session}/agents", Name: "agents", MIMEType: jsonMIME, Description: "The agents of the session and their status."},
		{URITemplate: sessionURI + "{session}/notes", Name: "notes", MIMEType: jsonMIME, Description: "The notes that all share."},
		{URITemplate: sessionURI + "{session}/whiteboard", Name: "whiteboard", MIMEType: jsonMIME, Description: "The values that all share."},
	}}
	m, err := s.seat.Member()
	if err != nil {
		return l, nil //nolint:nilerr // there is nothing to list yet
	}
	base := sessionURI + m.Session().ID() + "/"
	for name, about := range map[string]string{
		"signals": "Your unread signals.", "inbox/" + m.ID(): "Your unread signals.", "agents": "The agents of the session.",
		"notes": "The notes that all share.", "whiteboard": "The values that all share.",
	} {
		l.Resources = append(l.Resources, listen.Resource{URI: base + name, Name: name, Description: about, MIMEType: jsonMIME})
	}
	return l, nil
}

// part finds what a URI names.
func (s signalSource) part(uri string) (*mailbox.Member, mailbox.Part, error) {
	m, err := s.seat.Member()
	if err != nil {
		return nil, 0, &listen.NotFoundError{URI: uri, Hint: err.Error()}
	}
	session, rest, _ := strings.Cut(strings.TrimPrefix(uri, sessionURI), "/")
	if session != m.Session().ID() {
		return nil, 0, &listen.NotFoundError{URI: uri, Hint: "your session is " + m.Session().ID()}
	}
	switch rest {
	case "signals", "inbox/" + m.ID():
		return m, mailbox.PartSignals, nil
	case "agents":
		return m, mailbox.PartAgents, nil
	case "notes":
		return m, mailbox.PartNotes, nil
	case "whiteboard":
		return m, mailbox.PartBoard, nil
	}
	if agent, ok := strings.CutPrefix(rest, "inbox/"); ok && mailbox.CheckAgent(agent) == nil {
		return nil, 0, &ForbiddenError{Verb: Read, Target: uri, Hint: fmt.Sprintf("you are %q, and an agent reads its own inbox only", m.ID())}
	}
	return nil, 0, &listen.NotFoundError{URI: uri, Hint: "there are signals, inbox/" + m.ID() + ", agents, notes, whiteboard"}
}

// Read implements listen.Source. Signals and notes come as one page, the oldest
// first: ReadOptions.After is where the next one begins.
func (s signalSource) Read(ctx context.Context, uri string, o listen.ReadOptions) ([]listen.Contents, error) {
	m, part, err := s.part(uri)
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if o.After != nil {
		after = *o.After
	}
	var v any
	switch part {
	case mailbox.PartSignals:
		p, rerr := m.Read(ctx, mailbox.Selection{After: after, Limit: mailbox.MaxPage})
		v, err = p.Signals, rerr
	case mailbox.PartAgents:
		v, err = m.Agents(ctx)
	case mailbox.PartNotes:
		v, _, err = m.Notes(ctx, after, mailbox.MaxPage)
	case mailbox.PartBoard:
		v, err = m.Whiteboard(ctx, "")
	}
	if err != nil {
		return nil, err
	}
	text, err := marshal(v)
	if err != nil {
		return nil, err
	}
	return []listen.Contents{{URI: uri, MIMEType: jsonMIME, Text: string(text)}}, nil
}

// Watch implements listen.Source.
func (s signalSource) Watch(_ context.Context, uri string, changed func()) (stop func(), err error) {
	m, part, err := s.part(uri)
	if err != nil {
		return nil, err
	}
	return m.Session().Watch(part, m.ID(), changed), nil
}
