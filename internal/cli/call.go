package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/watch"
)

func newCall(e *env) *cobra.Command {
	var servers serverFlags
	cmd := &cobra.Command{
		Use:   "call TOOL [KEY=VALUE...]",
		Short: "Call a tool",
		Long: `Call a tool of the servers. KEY=VALUE gives a string where the tool wants a
string, else the JSON that VALUE is, else a string; KEY:=JSON gives exactly that
JSON. SERVER/TOOL names a tool that several servers have.`,
		Example: `  ossicle call memo_set key=todo value=tea --mcp-http http://127.0.0.1:7718/mcp
  ossicle call memo_get key=todo --mcp-stdio 'ossicle memo --data notes.json'`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return servers.withClient(cmd.Context(), e, app.ClientOptions{}, nil, func(client *app.Client) error {
				return e.call(cmd.Context(), client, args[0], args[1:])
			})
		},
	}
	servers.register(cmd)
	return cmd
}

func (e *env) call(ctx context.Context, client *app.Client, name string, pairs []string) error {
	server, tool, err := findTool(ctx, client.Servers, name)
	if err != nil {
		return err
	}
	args, err := arguments(tool, pairs)
	if err != nil {
		return &usageError{err}
	}
	value, err := server.CallTool(ctx, tool.Name, args)
	if err != nil {
		return err
	}
	return e.printValue(value)
}

// findTool looks for TOOL on all servers, or for SERVER/TOOL on one.
func findTool(ctx context.Context, pool *mcpclient.Pool, name string) (*mcpclient.Server, watch.Tool, error) {
	on, short, qualified := strings.Cut(name, "/")
	var (
		found  []*mcpclient.Server
		tool   watch.Tool
		known  []string
		failed error
	)
	for _, server := range pool.Servers() {
		tools, err := server.Tools(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, t := range tools {
			known = append(known, t.Name)
			if t.Name == name || qualified && t.Name == short && server.Name() == on {
				found, tool = append(found, server), t
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], tool, nil
	case len(found) > 1:
		var full []string
		for _, s := range found {
			full = append(full, s.Name()+"/"+tool.Name)
		}
		return nil, tool, &usageError{fmt.Errorf("several servers have the tool: name one of %s", strings.Join(full, ", "))}
	case failed != nil:
		return nil, tool, fmt.Errorf("find tool %q: %w", name, failed)
	default:
		slices.Sort(known)
		return nil, tool, &usageError{fmt.Errorf("no server has the tool %q; there are: %s", name, strings.Join(known, ", "))}
	}
}

// arguments makes the JSON object of a call, in the order of the command line.
func arguments(tool watch.Tool, pairs []string) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, pair := range pairs {
		key, value, err := argument(tool, pair)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func argument(tool watch.Tool, pair string) (key string, value json.RawMessage, err error) {
	key, text, ok := strings.Cut(pair, "=")
	if !ok || key == "" {
		return "", nil, fmt.Errorf("argument %q: write it as KEY=VALUE or KEY:=JSON", pair)
	}
	if exact, ok := strings.CutSuffix(key, ":"); ok {
		if !json.Valid([]byte(text)) {
			return "", nil, fmt.Errorf("argument %q: %q is not JSON", exact, text)
		}
		return exact, json.RawMessage(text), nil
	}
	if json.Valid([]byte(text)) && !wantsString(tool, key) {
		return key, json.RawMessage(text), nil
	}
	value, err = json.Marshal(text)
	return key, value, err
}

// wantsString reports whether the tool's schema types the parameter as string.
func wantsString(tool watch.Tool, key string) bool {
	var schema struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(tool.Parameters, &schema) != nil {
		return false
	}
	return schema.Properties[key].Type == "string"
}
