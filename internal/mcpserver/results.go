package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

// uncached says that a result is good for now and for its reader only. What is
// watched must never come from a cache, and lists depend on the reader's rights
// (specification W-025, M-6).
var uncached = mcp.Cacheable{TTLMs: 0, CacheScope: "private"}

// readResult is the result of resources/read in the form of its era: the SDK's
// own has the cache fields in both (and no way to say that it is complete, from
// outside of its handlers). The embedded result makes it a result to the SDK and
// carries _meta.
type readResult struct {
	*mcp.ReadResourceResult
	contents []listen.Contents
	modern   bool
}

// MarshalJSON writes text as it is, without the escapes for HTML.
func (r *readResult) MarshalJSON() ([]byte, error) {
	type block struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType,omitempty"`
		Text     *string `json:"text,omitempty"`
		Blob     string  `json:"blob,omitempty"`
	}
	wire := struct {
		Meta       map[string]any `json:"_meta,omitempty"`
		ResultType string         `json:"resultType,omitempty"`
		TTLMs      *int           `json:"ttlMs,omitempty"`
		CacheScope string         `json:"cacheScope,omitempty"`
		Contents   []block        `json:"contents"`
	}{Meta: r.Meta, Contents: make([]block, 0, len(r.contents))}
	if r.modern {
		wire.ResultType, wire.TTLMs, wire.CacheScope = "complete", &uncached.TTLMs, uncached.CacheScope
	}
	for i := range r.contents {
		c := &r.contents[i]
		b := block{URI: c.URI, MIMEType: c.MIMEType}
		if c.Blob != nil {
			b.Blob = base64.StdEncoding.EncodeToString(c.Blob)
		} else {
			b.Text = &c.Text
		}
		wire.Contents = append(wire.Contents, b)
	}
	return marshal(wire)
}

// dropCacheFields takes the cache fields, which legacy revisions do not have,
// out of lists for legacy peers.
func (s *Server) dropCacheFields(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err != nil || isModern(req) {
			return res, err
		}
		switch res.(type) {
		case *mcp.ListToolsResult, *mcp.ListPromptsResult, *mcp.ListResourcesResult, *mcp.ListResourceTemplatesResult:
			return &legacyResult{res}, nil
		}
		return res, nil
	}
}

type legacyResult struct{ mcp.Result }

// MarshalJSON implements json.Marshaler.
func (r *legacyResult) MarshalJSON() ([]byte, error) {
	whole, err := marshal(r.Result)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(whole, &members); err != nil {
		return nil, err
	}
	delete(members, "ttlMs")
	delete(members, "cacheScope")
	return marshal(members)
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
