package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Bounds of a catalogue.
const (
	MaxTools       = 128
	MaxDescription = 1024      // bytes
	MaxSchema      = 64 << 10  // bytes of one
	MaxSchemas     = 512 << 10 // bytes of all
)

// Catalogue are the tools of one of our own servers, as far as they are shown.
type Catalogue struct {
	Tools []Tool `json:"tools"` // by name
	Total int    `json:"total"` // also of those that are left out
	// Digest is of all tools, before anything was left out.
	Digest    string `json:"digest"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Tool is one tool of a catalogue.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// NewCatalogue bounds a list of tools: the first MaxTools by name, descriptions cut
// and schemas left out where they are too large.
func NewCatalogue(tools []Tool) Catalogue {
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, t := range tools {
		// The digest is of what there is, also where that is no JSON.
		_ = enc.Encode([]string{t.Name, t.Description, string(t.InputSchema)})
	}
	c := Catalogue{Tools: tools, Total: len(tools), Digest: hex.EncodeToString(sum.Sum(nil))}
	return c.safe()
}

func (c *Catalogue) digest() string {
	if c == nil {
		return ""
	}
	return c.Digest
}

// safe bounds a catalogue, whoever made it.
func (c Catalogue) safe() Catalogue {
	out := Catalogue{Total: max(c.Total, len(c.Tools)), Digest: cut(c.Digest, 64), Truncated: c.Truncated || len(c.Tools) > MaxTools}
	left := MaxSchemas
	for _, t := range c.Tools[:min(len(c.Tools), MaxTools)] {
		kept := Tool{Name: name(t.Name), Description: cut(printable(t.Description), MaxDescription)}
		switch n := len(t.InputSchema); {
		case n == 0:
		case n > MaxSchema, n > left, !json.Valid(t.InputSchema):
			out.Truncated = true
		default:
			kept.InputSchema, left = slices.Clone(t.InputSchema), left-n
		}
		out.Truncated = out.Truncated || kept.Description != printable(t.Description)
		out.Tools = append(out.Tools, kept)
	}
	return out
}
