package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/internal/memo"
)

// MemoTools are the tools that change a memo store; watching it is a matter of
// its resource (specification W-024, W-231).
func MemoTools(store *memo.Store) []Tool {
	return []Tool{
		{
			Name: "memo_set", Title: "Set a note",
			Description: "Store any JSON value under a key of memo://notes. An existing value is replaced.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"key":{"type":"string","minLength":1,"maxLength":256,"description":"name of the note"},` +
				`"value":{"description":"any JSON value"}},` +
				`"required":["key","value"],"additionalProperties":false}`),
			Destructive: true, Idempotent: true,
			Call: func(_ context.Context, args json.RawMessage) (ToolResult, error) {
				return memoSet(store, args)
			},
		},
		{
			Name: "memo_get", Title: "Get a note",
			Description: "Return the value of a key of memo://notes as JSON, or without a key all notes as one object.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"key":{"type":"string","description":"name of the note; leave it out for all"}},"additionalProperties":false}`),
			ReadOnly: true, Idempotent: true,
			Call: func(_ context.Context, args json.RawMessage) (ToolResult, error) {
				return memoGet(store, args)
			},
		},
		{
			Name: "memo_delete", Title: "Delete a note",
			Description: "Remove a key from memo://notes. Returns true if it was there.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"key":{"type":"string","description":"name of the note"}},"required":["key"],"additionalProperties":false}`),
			Destructive: true, Idempotent: true,
			Call: func(_ context.Context, args json.RawMessage) (ToolResult, error) {
				return memoDelete(store, args)
			},
		},
	}
}

// key and value are pointers so that a missing one differs from an empty one.
type memoArgs struct {
	Key   *string         `json:"key"`
	Value json.RawMessage `json:"value"`
}

func memoSet(store *memo.Store, args json.RawMessage) (ToolResult, error) {
	var a memoArgs
	if err := DecodeArgs(args, &a); err != nil {
		return ToolResult{}, err
	}
	if a.Key == nil || a.Value == nil {
		return ToolResult{}, fmt.Errorf("read arguments: key and value are required, for instance %s", `{"key":"todo","value":["milk"]}`)
	}
	if err := store.Set(*a.Key, a.Value); err != nil {
		return ToolResult{}, err
	}
	return ToolResult{Text: "true"}, nil
}

func memoGet(store *memo.Store, args json.RawMessage) (ToolResult, error) {
	var a struct {
		Key *string `json:"key"`
	}
	if err := DecodeArgs(args, &a); err != nil {
		return ToolResult{}, err
	}
	if a.Key == nil {
		return ToolResult{Text: string(store.JSON())}, nil
	}
	value, ok := store.Get(*a.Key)
	if !ok {
		return ToolResult{}, missingNote(store, *a.Key)
	}
	return ToolResult{Text: string(value)}, nil
}

func missingNote(store *memo.Store, key string) error {
	if near := store.Similar(key); len(near) > 0 {
		return fmt.Errorf("get note %q: there is none; did you mean: %s", key, strings.Join(near, ", "))
	}
	return fmt.Errorf("get note %q: there is none; memo_get without a key returns all", key)
}

func memoDelete(store *memo.Store, args json.RawMessage) (ToolResult, error) {
	var a struct {
		Key *string `json:"key"`
	}
	if err := DecodeArgs(args, &a); err != nil {
		return ToolResult{}, err
	}
	if a.Key == nil {
		return ToolResult{}, fmt.Errorf("read arguments: key is required")
	}
	found, err := store.Delete(*a.Key)
	if err != nil {
		return ToolResult{}, err
	}
	return ToolResult{Text: fmt.Sprint(found)}, nil
}
