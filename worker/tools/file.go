package tools

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fileArgs are the arguments of the tool file.
type fileArgs struct {
	Action  string `json:"action" jsonschema:"read, write, edit, list, stat, search, mkdir, move or delete"`
	Path    string `json:"path,omitempty" jsonschema:"path in the workspace"`
	To      string `json:"to,omitempty" jsonschema:"for move: the new path"`
	Content string `json:"content,omitempty" jsonschema:"for write: the whole content"`
	Base64  bool   `json:"base64,omitempty" jsonschema:"for write: the content is base64"`
	Old     string `json:"old,omitempty" jsonschema:"for edit: the text to replace, which must be there exactly once"`
	New     string `json:"new,omitempty" jsonschema:"for edit: what to put there"`
	All     bool   `json:"all,omitempty" jsonschema:"for edit: replace every one; for delete: a directory with all that is in it"`
	Offset  int    `json:"offset,omitempty" jsonschema:"for read: first line, from 1"`
	Limit   int    `json:"limit,omitempty" jsonschema:"for read: number of lines"`
	Text    string `json:"text,omitempty" jsonschema:"for search: the text to find"`
	Pattern string `json:"pattern,omitempty" jsonschema:"for search: names of files, for instance *.go"`
}

const fileDescription = `Work on files of the workspace: read (with line numbers when offset or limit is given), write (whole files, atomically), edit (replace one text), list, stat, search, mkdir, move, delete.
Paths are below the workspace; nothing outside can be reached. What is not text is read as base64.`

// AddFile adds the tool file to a server.
func AddFile(server *mcp.Server, f *Files) {
	mcp.AddTool(server, &mcp.Tool{Name: "file", Title: "Work on files", Description: fileDescription},
		func(_ context.Context, _ *mcp.CallToolRequest, a fileArgs) (*mcp.CallToolResult, any, error) {
			text, err := f.do(a)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", a.Action, err)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
}

func (f *Files) do(a fileArgs) (string, error) {
	switch a.Action {
	case "read":
		return f.readText(a)
	case "write":
		content := []byte(a.Content)
		if a.Base64 {
			var err error
			if content, err = base64.StdEncoding.DecodeString(a.Content); err != nil {
				return "", fmt.Errorf("the content is not base64: %w", err)
			}
		}
		return fmt.Sprintf("Wrote %d bytes to %s.\n", len(content), a.Path), f.Write(a.Path, content)
	case "edit":
		n, err := f.Edit(a.Path, a.Old, a.New, a.All)
		return fmt.Sprintf("Replaced %d in %s.\n", n, a.Path), err
	case "mkdir":
		return fmt.Sprintf("Made %s.\n", a.Path), f.Mkdir(a.Path)
	case "move":
		return fmt.Sprintf("Moved %s to %s.\n", a.Path, a.To), f.Move(a.Path, a.To)
	case "delete":
		return fmt.Sprintf("Deleted %s.\n", a.Path), f.Delete(a.Path, a.All)
	}
	return f.look(a)
}

// look handles the actions that list something.
func (f *Files) look(a fileArgs) (string, error) {
	var lines []string
	var more bool
	switch a.Action {
	case "stat":
		e, err := f.Stat(a.Path)
		return e.line() + "\n", err
	case "list":
		entries, cut, err := f.List(a.Path)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			lines = append(lines, e.line())
		}
		more = cut
	case "search":
		found, cut, err := f.Search(a.Path, a.Text, a.Pattern)
		if err != nil {
			return "", err
		}
		for _, m := range found {
			lines = append(lines, fmt.Sprintf("%s:%d: %s", m.Path, m.Line, m.Text))
		}
		more = cut
	default:
		return "", fmt.Errorf("the action %.40q is not one of read, write, edit, list, stat, search, mkdir, move, delete", a.Action)
	}
	out := fmt.Sprintf("%d found", len(lines))
	if more {
		out += ", and more that are not shown"
	}
	return strings.Join(append([]string{out}, lines...), "\n") + "\n", nil
}

func (e Entry) line() string { return fmt.Sprintf("%-9s %s %10d %s", e.Kind, e.Mode, e.Size, e.Path) }

// readText numbers the lines of a part: whoever asks for a part counts lines.
func (f *Files) readText(a fileArgs) (string, error) {
	content, text, total, err := f.Read(a.Path, a.Offset, a.Limit)
	if err != nil || !text || (a.Offset <= 0 && a.Limit <= 0) {
		return content, err
	}
	var b strings.Builder
	n := max(1, a.Offset)
	for line := range strings.Lines(content) {
		fmt.Fprintf(&b, "%6d\t%s", n, line)
		n++
	}
	return ended(b.String()) + fmt.Sprintf("[of %d lines]\n", total), nil
}
