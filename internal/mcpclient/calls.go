package mcpclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	stdjson "encoding/json"

	"github.com/ossicle/ossicle/watch"
)

// Bounds of a list that a server hands out in pages (specification M-16).
const (
	maxPages   = 1000
	maxEntries = 10_000
)

// Keys of _meta that our own servers know. Others ignore them.
const (
	metaAfter     = "io.github.ossicle/after"     // of a read: events after this seq only
	metaWatchable = "io.github.ossicle/watchable" // of a list entry: false when it never announces a change
)

// Info implements watch.Server.
func (s *Server) Info(ctx context.Context) (watch.ServerInfo, error) {
	sess, err := s.session(ctx)
	if err != nil {
		return watch.ServerInfo{}, err
	}
	info := watch.ServerInfo{
		ProtocolVersion: sess.init.ProtocolVersion,
		Listens:         sess.era == eraModern || s.o.LegacyWatch,
	}
	if caps := sess.init.Capabilities; caps != nil && caps.Resources != nil {
		info.Subscribable = caps.Resources.Subscribe
	}
	return info, nil
}

// entryJSON is a line of resources/list or resources/templates/list.
type entryJSON struct {
	URI         string                    `json:"uri"`
	URITemplate string                    `json:"uriTemplate"`
	Name        string                    `json:"name"`
	Description string                    `json:"description"`
	MIMEType    string                    `json:"mimeType"`
	Meta        map[string]jsontext.Value `json:"_meta"`
}

func (e entryJSON) entry() watch.Entry {
	out := watch.Entry{URI: e.URI, Name: e.Name, Description: e.Description, MIMEType: e.MIMEType}
	if e.URITemplate != "" {
		out.URI, out.Template = e.URITemplate, true
	}
	out.Static = string(e.Meta[metaWatchable]) == "false"
	return out
}

// Entries implements watch.Server. A server without resources has none.
func (s *Server) Entries(ctx context.Context) ([]watch.Entry, error) {
	var out []watch.Entry
	for _, list := range []func(context.Context) ([]watch.Entry, error){s.resources, s.templates} {
		entries, err := list(ctx)
		if errors.Is(err, errNoFeature) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, entries...)
	}
	return out, nil
}

func (s *Server) resources(ctx context.Context) ([]watch.Entry, error) {
	return s.entries(ctx, "resources/list", func(ctx context.Context, sess *session, cursor string) error {
		_, err := sess.cs.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
		return err
	})
}

func (s *Server) templates(ctx context.Context) ([]watch.Entry, error) {
	return s.entries(ctx, "resources/templates/list", func(ctx context.Context, sess *session, cursor string) error {
		_, err := sess.cs.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
		return err
	})
}

// errNoFeature says that a server does not have what was asked for.
var errNoFeature = errors.New("not offered by the server")

func (s *Server) entries(ctx context.Context, method string, ask func(context.Context, *session, string) error) ([]watch.Entry, error) {
	var out []watch.Entry
	err := s.pages(ctx, method, func(ctx context.Context, sess *session, cursor string) error {
		if caps := sess.init.Capabilities; caps == nil || caps.Resources == nil {
			return errNoFeature
		}
		return ask(ctx, sess, cursor)
	}, func(raw []byte) (next string, n int, err error) {
		var page struct {
			Resources []entryJSON `json:"resources"`
			Templates []entryJSON `json:"resourceTemplates"`
			Next      string      `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page, lax); err != nil {
			return "", 0, err
		}
		for _, e := range append(page.Resources, page.Templates...) {
			out = append(out, e.entry())
		}
		return page.Next, len(page.Resources) + len(page.Templates), nil
	})
	return out, err
}

// pages fetches a list to its end, or to its bounds. A list that the server
// does not know is errNoFeature.
func (s *Server) pages(ctx context.Context, method string, ask func(context.Context, *session, string) error, take func([]byte) (string, int, error)) error {
	entries, cursor := 0, ""
	for page := 1; ; page++ {
		raw, err := s.call(ctx, s.o.RequestTimeout, true, func(ctx context.Context, sess *session) error { return ask(ctx, sess, cursor) })
		if rpc, ok := serverError(err); ok && rpc.Code == codeMethodNotFound {
			return errNoFeature
		}
		if err != nil {
			return err
		}
		next, n, err := take(raw)
		if err != nil {
			return fmt.Errorf("decode %s of server %q: %w", method, s.spec.Name, err)
		}
		entries += n
		switch {
		case entries > maxEntries, next != "" && (page == maxPages || next == cursor):
			return &EndlessError{Server: s.spec.Name, Method: method, Pages: page, Entries: entries}
		case next == "":
			return nil
		}
		cursor = next
	}
}

// contentsJSON is one block of a read.
type contentsJSON struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType,omitempty"`
	Text     *string `json:"text,omitempty"`
	Blob     string  `json:"blob,omitempty"`
}

// body is the block as text: a blob that holds none stays base64.
func (c contentsJSON) body() watch.Body {
	b := watch.Body{MIMEType: c.MIMEType}
	switch {
	case c.Text != nil:
		b.Text = *c.Text
	default:
		b.Text = c.Blob
		if raw, err := base64.StdEncoding.DecodeString(c.Blob); err == nil && utf8.Valid(raw) {
			b.Text = string(raw)
		}
	}
	return b
}

// Read implements watch.Server. A read of several blocks is a JSON array of
// them.
func (s *Server) Read(ctx context.Context, uri string, after *int64) (watch.Body, error) {
	raw, err := s.call(ctx, s.o.RequestTimeout, true, func(ctx context.Context, sess *session) error {
		params := &mcp.ReadResourceParams{URI: uri}
		if after != nil {
			params.Meta = mcp.Meta{metaAfter: *after}
		}
		_, err := sess.cs.ReadResource(ctx, params)
		return err
	})
	if err != nil {
		return watch.Body{}, fmt.Errorf("read %s: %w", uri, err)
	}
	var res struct {
		ResultType string         `json:"resultType"`
		Contents   []contentsJSON `json:"contents"`
	}
	if err := json.Unmarshal(raw, &res, lax); err != nil {
		return watch.Body{}, fmt.Errorf("read %s: decode result of server %q: %w", uri, s.spec.Name, err)
	}
	if err := complete(res.ResultType); err != nil {
		return watch.Body{}, fmt.Errorf("read %s: %w", uri, err)
	}
	switch len(res.Contents) {
	case 0:
		return watch.Body{}, nil
	case 1:
		return res.Contents[0].body(), nil
	}
	all, err := json.Marshal(res.Contents, lax)
	if err != nil {
		return watch.Body{}, fmt.Errorf("read %s: encode contents: %w", uri, err)
	}
	return watch.Body{Text: string(all), MIMEType: "application/json"}, nil
}

// complete refuses a result that is none yet.
func complete(resultType string) error {
	switch resultType {
	case "", "complete":
		return nil
	case "input_required":
		return errors.New("the server asks for input that this client cannot give")
	}
	return fmt.Errorf("the server answered with a result of unknown type %q", resultType)
}

// Tools implements watch.Server.
func (s *Server) Tools(ctx context.Context) ([]watch.Tool, error) {
	var out []watch.Tool
	var valid map[string]bool // the SDK leaves out tools whose header parameters are malformed
	err := s.pages(ctx, "tools/list", func(ctx context.Context, sess *session, cursor string) error {
		if caps := sess.init.Capabilities; caps == nil || caps.Tools == nil {
			return errNoFeature
		}
		res, err := sess.cs.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		valid = nil
		if err == nil {
			valid = map[string]bool{}
			for _, t := range res.Tools {
				valid[t.Name] = true
			}
		}
		return err
	}, func(raw []byte) (string, int, error) {
		var page struct {
			Tools []struct {
				Name        string         `json:"name"`
				Description string         `json:"description"`
				InputSchema jsontext.Value `json:"inputSchema"`
				Annotations struct {
					ReadOnlyHint *bool `json:"readOnlyHint"`
				} `json:"annotations"`
			} `json:"tools"`
			Next string `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page, lax); err != nil {
			return "", 0, err
		}
		for _, t := range page.Tools {
			if valid == nil || valid[t.Name] {
				hint := t.Annotations.ReadOnlyHint
				out = append(out, watch.Tool{
					Name: t.Name, Description: t.Description,
					ReadOnly: hint != nil && *hint, Parameters: stdjson.RawMessage(t.InputSchema),
				})
			}
		}
		return page.Next, len(page.Tools), nil
	})
	if errors.Is(err, errNoFeature) {
		return nil, nil
	}
	return out, err
}

// CallTool implements watch.Server. A call is never repeated. Several text
// parts are a JSON array. Errors: [*ToolError] when the tool says so.
func (s *Server) CallTool(ctx context.Context, name string, args stdjson.RawMessage) (stdjson.RawMessage, error) {
	if len(args) == 0 || string(args) == "null" {
		args = stdjson.RawMessage("{}")
	}
	if v := jsontext.Value(args); v.Kind() != '{' || !v.IsValid(jsontext.AllowInvalidUTF8(true)) {
		return nil, fmt.Errorf("call tool %q: arguments are not a JSON object", name)
	}
	raw, err := s.call(ctx, s.o.CallTimeout, false, func(ctx context.Context, sess *session) error {
		_, err := sess.cs.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("call tool %q: %w", name, err)
	}
	var res toolResult
	if err := json.Unmarshal(raw, &res, lax); err != nil {
		return nil, fmt.Errorf("call tool %q: decode result of server %q: %w", name, s.spec.Name, err)
	}
	if err := complete(res.ResultType); err != nil {
		return nil, fmt.Errorf("call tool %q: %w", name, err)
	}
	if res.IsError {
		return nil, &ToolError{Server: s.spec.Name, Tool: name, Text: res.text()}
	}
	return res.value(), nil
}

// toolResult is the result of a tool as it came.
type toolResult struct {
	ResultType string `json:"resultType"`
	Content    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured jsontext.Value `json:"structuredContent"`
	IsError    bool           `json:"isError"`
}

func (r toolResult) text() string {
	text := ""
	for _, c := range r.Content {
		if c.Type == "text" {
			if text != "" {
				text += "\n"
			}
			text += c.Text
		}
	}
	return text
}

// value is the structured content, digit by digit, or else the text parts.
func (r toolResult) value() stdjson.RawMessage {
	if r.Structured != nil && r.Structured.Kind() != 'n' {
		return stdjson.RawMessage(r.Structured)
	}
	var parts []jsontext.Value
	for _, c := range r.Content {
		if c.Type == "text" {
			parts = append(parts, textValue(c.Text))
		}
	}
	switch len(parts) {
	case 0:
		return stdjson.RawMessage("null")
	case 1:
		return stdjson.RawMessage(parts[0])
	}
	out := []byte{'['}
	for i, p := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return append(out, ']')
}

// textValue is JSON text as it is, and other text as a JSON string.
func textValue(text string) jsontext.Value {
	if v := jsontext.Value(text); v.IsValid() {
		return v
	}
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(nil, string([]rune(text))) // replaces what is no UTF-8
	}
	return quoted
}
