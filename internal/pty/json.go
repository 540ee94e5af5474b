package pty

import (
	"bytes"
	"maps"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/attach"
)

// encode writes JSON that is the same for the same value.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true), jsontext.WithIndent("  "))
	return append(b, '\n'), err
}

// merge adds members to an object within a JSON document, which may have comments
// and commas too many, as people write them.
func merge(text []byte, member string, more map[string]any) ([]byte, error) {
	doc := map[string]jsontext.Value{}
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(plainJSON(text), &doc); err != nil {
			return nil, err
		}
	}
	inner := map[string]any{}
	if old := doc[member]; len(old) > 0 && string(old) != "null" {
		kept := map[string]jsontext.Value{}
		if err := json.Unmarshal(old, &kept); err != nil {
			return nil, err
		}
		for name, v := range kept {
			inner[name] = v
		}
	}
	maps.Copy(inner, more)
	var err error
	if doc[member], err = json.Marshal(inner, json.Deterministic(true), jsontext.PreserveRawStrings(true)); err != nil {
		return nil, err
	}
	return encode(doc)
}

// add puts a value at the end of an array within a JSON document.
func add(text []byte, member string, value jsontext.Value) ([]byte, error) {
	doc := map[string]jsontext.Value{}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	var all []jsontext.Value
	if old := doc[member]; len(old) > 0 {
		if err := json.Unmarshal(old, &all); err != nil {
			return nil, err
		}
	}
	var err error
	if doc[member], err = json.Marshal(append(all, value), jsontext.PreserveRawStrings(true)); err != nil {
		return nil, err
	}
	return encode(doc)
}

// plainJSON takes comments, and commas before a closing bracket, out of a document.
func plainJSON(text []byte) []byte {
	var out []byte
	comma := -1 // in out, with nothing but blanks behind it
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			n := stringEnd(text[i:])
			out, comma = append(out, text[i:i+n]...), -1
			i += n
			continue
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		case c == '/' && i+1 < len(text) && text[i+1] == '*':
			n := bytes.Index(text[i+2:], []byte("*/"))
			if n < 0 {
				return out
			}
			i += n + 4
			continue
		case c == ',':
			comma = len(out)
		case (c == '}' || c == ']') && comma >= 0:
			out[comma] = ' '
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
		out = append(out, text[i])
		i++
	}
	return out
}

// stringEnd is the length of the string that the text begins with.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// escapeInStrings writes a character of strings as its escape, for readers that
// look for it before they parse.
func escapeInStrings(text []byte, char byte, escape string) []byte {
	var out []byte
	for len(text) > 0 {
		i := bytes.IndexByte(text, '"')
		if i < 0 {
			return append(out, text...)
		}
		n := i + stringEnd(text[i:])
		out = append(out, text[:i]...)
		out = append(out, strings.ReplaceAll(string(text[i:n]), string(char), escape)...)
		text = text[n:]
	}
	return out
}

// standard is an entry of an mcpServers object as Claude Code takes it.
func standard(c chosen) map[string]any {
	if c.by == attach.Stdio {
		entry := command(c)
		entry["type"] = string(attach.Stdio)
		return entry
	}
	entry := map[string]any{"type": string(c.by), "url": c.url()}
	if h := headers(c.Headers); len(h) > 0 {
		entry["headers"] = h
	}
	return entry
}

// command is an entry for a server on standard streams.
func command(c chosen) map[string]any {
	entry := map[string]any{"command": c.Command[0], "args": c.Command[1:]}
	if env := pairs(c.Env); len(env) > 0 {
		entry["env"] = env
	}
	return entry
}
