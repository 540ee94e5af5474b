package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/notice"
)

// Names of the inbox tools.
const (
	toolInboxList = "inbox_list"
	toolInboxShow = "inbox_show"
	toolInboxAck  = "inbox_ack"
)

// Bounds of the inbox tools.
const (
	inboxListLimit = 20  // notices of one list
	inboxListLine  = 120 // runes of a notice's first line
	inboxIDs       = 100 // of one call
)

// toolAdapter is who causes the steps that the inbox tools record.
const toolAdapter = "tool"

// inboxTools let an agent look into its own inbox, and into no other
// (specification D-3).
func inboxTools(in *notice.Inbox, agentID string) []agent.Tool {
	t := &inboxDesk{in: in, agent: agentID}
	return []agent.Tool{
		{
			Name: toolInboxList, ReadOnly: true,
			Description: "List your inbox: notices of watches and the like, newest first, with id and state. " +
				"Pending ones come by themselves; this is for looking back.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"pending":{"type":"boolean","description":"only those not shown yet"},` +
				`"after":{"type":"string","description":"the next of the page before"}},"additionalProperties":false}`),
			Call: t.call(t.list),
		},
		{
			Name: toolInboxShow, ReadOnly: false,
			Description: "Show notices of your inbox in full; they count as seen then.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"ids":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":100}},` +
				`"required":["ids"],"additionalProperties":false}`),
			Call: t.call(t.show),
		},
		{
			Name: toolInboxAck, ReadOnly: false,
			Description: "Acknowledge notices of your inbox: you have dealt with them.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"ids":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":100}},` +
				`"required":["ids"],"additionalProperties":false}`),
			Call: t.call(t.ack),
		},
	}
}

// inboxDesk serves the inbox tools of one agent.
type inboxDesk struct {
	in    *notice.Inbox
	agent string
}

// call makes what the model can mend a result, and leaves the rest an error.
func (*inboxDesk) call(do func(context.Context, json.RawMessage) (string, error)) func(context.Context, json.RawMessage) (agent.ToolResult, error) {
	return func(ctx context.Context, args json.RawMessage) (agent.ToolResult, error) {
		text, err := do(ctx, args)
		switch {
		case err != nil && ctx.Err() != nil:
			return agent.ToolResult{}, ctx.Err()
		case err != nil:
			return agent.ToolResult{Text: err.Error(), IsError: true}, nil //nolint:nilerr // the model mends its call
		}
		return agent.ToolResult{Text: text}, nil
	}
}

func (t *inboxDesk) list(ctx context.Context, raw json.RawMessage) (string, error) {
	var args struct {
		Pending bool   `json:"pending"`
		After   string `json:"after"`
	}
	if err := mcpserver.DecodeArgs(raw, &args); err != nil {
		return "", err
	}
	status, err := t.in.Status(ctx, t.agent)
	if err != nil {
		return "", err
	}
	q := notice.Query{Agent: t.agent, Newest: true, Limit: inboxListLimit, After: args.After}
	if args.Pending {
		q.States = []notice.State{notice.Persisted, notice.Notified, notice.Woken}
	}
	page, err := t.in.List(ctx, q)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(status.String())
	for _, r := range page.Records {
		fmt.Fprintf(&b, "\n%s %s %s %s: %s", r.ID, r.State, r.CreatedAt.UTC().Format(time.RFC3339),
			neutral(string(r.Source)+" "+r.Title, notice.MaxTitle), neutral(r.Text, inboxListLine))
	}
	if page.Next != "" {
		fmt.Fprintf(&b, "\n(more: after=%q)", page.Next)
	}
	return b.String(), nil
}

// neutral is text from outside as part of a line of ours.
func neutral(s string, limit int) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(notice.Plain(s, limit))
}

// ids reads the one argument of the other two.
func (*inboxDesk) ids(raw json.RawMessage) ([]string, error) {
	var args struct {
		IDs []string `json:"ids"`
	}
	if err := mcpserver.DecodeArgs(raw, &args); err != nil {
		return nil, err
	}
	switch n := len(args.IDs); {
	case n == 0:
		return nil, errors.New("read arguments: ids is empty; inbox_list shows what there is")
	case n > inboxIDs:
		return nil, fmt.Errorf("read arguments: %d ids, and at most %d are taken at once", n, inboxIDs)
	}
	return args.IDs, nil
}

func (t *inboxDesk) show(ctx context.Context, raw json.RawMessage) (string, error) {
	ids, err := t.ids(raw)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, id := range ids {
		r, err := t.in.Get(ctx, t.agent, id)
		if errors.Is(err, notice.ErrNotFound) {
			return "", &notice.IDError{IDs: []string{id}}
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, notice.Element(r.Notice)+"\n"+steps(r))
	}
	if err := t.in.Seen(ctx, t.agent, toolAdapter, ids...); err != nil {
		return "", err
	}
	return strings.Join(parts, "\n"), nil
}

// steps is what became of a notice, in one line.
func steps(r notice.Record) string {
	var parts []string
	for _, s := range r.Steps {
		text := string(s.State) + " " + s.At.UTC().Format(time.RFC3339)
		if s.Adapter != "" {
			text += " by " + s.Adapter
		}
		if s.Reason != "" {
			text += " (" + neutral(s.Reason, notice.MaxReason) + ")"
		}
		parts = append(parts, text)
	}
	return r.ID + ": " + strings.Join(parts, ", ")
}

func (t *inboxDesk) ack(ctx context.Context, raw json.RawMessage) (string, error) {
	ids, err := t.ids(raw)
	if err != nil {
		return "", err
	}
	moved, err := t.in.Ack(ctx, t.agent, toolAdapter, ids...)
	if err != nil {
		return "", err
	}
	status, err := t.in.Status(ctx, t.agent)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d acknowledged; %s", len(moved), status), nil
}
