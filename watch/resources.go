package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Resource is one line of Resources (W-061).
type Resource struct {
	URI          string `json:"uri"` // the template text when Template
	Template     bool   `json:"template"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	Example      string `json:"example"` // of a call, from the description
	MIMEType     string `json:"mime_type"`
	Server       string `json:"server"`
	Subscribable bool   `json:"subscribable"`
}

// Resources lists what all servers offer, in the order of the configuration.
// The error joins those of servers that could not be asked; the list is then
// that of the others.
func (m *Manager) Resources(ctx context.Context) ([]Resource, error) {
	listings, _ := m.listings(ctx, func(listing) *Entry { return nil })
	list := []Resource{}
	var failed error
	for _, l := range listings {
		if l.err != nil {
			failed = errors.Join(failed, fmt.Errorf("list resources of server %q: %w", l.server.Name(), l.err))
			continue
		}
		if len(l.entries) == 0 {
			continue
		}
		info, err := m.info(ctx, l.server)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("connect server %q: %w", l.server.Name(), err))
		}
		for _, e := range l.entries {
			list = append(list, Resource{
				URI: e.URI, Template: e.Template, Name: e.Name, Description: e.Description, Example: example(e.Description),
				MIMEType: e.MIMEType, Server: l.server.Name(), Subscribable: info.Subscribable && info.Listens && !e.Static,
			})
		}
	}
	return list, failed
}

// example is the text of the last "Example:" line of a description (W-062,
// WA-11). An empty rest of that line means the line after it.
func example(description string) string {
	const mark = "Example:"
	i := strings.LastIndex(description, mark)
	if i < 0 {
		return ""
	}
	text := strings.TrimLeft(description[i+len(mark):], " \t\r\n")
	text, _, _ = strings.Cut(text, "\n")
	return strings.Trim(text, " \t\r`")
}

// Read returns a resource: the body itself where it is JSON, else a JSON string
// of it (W-063).
func (m *Manager) Read(ctx context.Context, uri string) (json.RawMessage, error) {
	if err := checkURI(uri); err != nil {
		return nil, err
	}
	to, err := m.find(ctx, uri, func(context.Context, Server) bool { return true })
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.limits.ReadTime)
	defer cancel()
	body, err := to.server.Read(ctx, uri, nil)
	if err != nil {
		return nil, fmt.Errorf("read %q at server %q: %w", uri, to.server.Name(), err)
	}
	if len(body.Text) > m.limits.Body {
		return nil, fmt.Errorf("read %q: the body has %d bytes, more than %d", uri, len(body.Text), m.limits.Body)
	}
	if raw := []byte(body.Text); jsonx.Valid(raw) {
		return raw, nil
	}
	return jsonx.AppendString(nil, body.Text), nil
}
