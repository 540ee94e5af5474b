package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/listen"
)

// serveResources answers the methods about resources from the registry, so that
// what is listed and read is what the sources have at this moment.
func (s *Server) serveResources(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case methodListResources:
			p, _ := req.GetParams().(*mcp.ListResourcesParams)
			if p == nil {
				p = &mcp.ListResourcesParams{}
			}
			return s.listResources(ctx, p.Cursor)
		case methodListTemplates:
			p, _ := req.GetParams().(*mcp.ListResourceTemplatesParams)
			if p == nil {
				p = &mcp.ListResourceTemplatesParams{}
			}
			return s.listTemplates(ctx, p.Cursor)
		case methodReadResource:
			p, _ := req.GetParams().(*mcp.ReadResourceParams)
			if p == nil || p.URI == "" {
				return nil, newError(codeInvalidParams, "resources/read needs the uri of a resource; resources/list names them", nil)
			}
			return s.readResource(ctx, p, isModern(req))
		}
		return next(ctx, method, req)
	}
}

// listing is what the sources offer; a source that fails is left out and
// logged, unless nothing else is left.
func (s *Server) listing(ctx context.Context) (listen.Listing, error) {
	l, err := s.reg.List(ctx)
	if err != nil && len(l.Resources)+len(l.Templates) == 0 {
		return l, err
	}
	if err != nil {
		s.log.WarnContext(ctx, "some resources cannot be listed", logattr.Err(err))
	}
	return l, nil
}

func (s *Server) listResources(ctx context.Context, cursor string) (mcp.Result, error) {
	l, err := s.listing(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(l.Resources), func(r listen.Resource) bool { return s.permit(ctx, Read, r.URI) != nil })
	page, nextCursor, err := paginate(all, func(r listen.Resource) string { return r.URI }, cursor, s.opts.PageSize)
	if err != nil {
		return nil, err
	}
	res := &mcp.ListResourcesResult{Cacheable: uncached, NextCursor: nextCursor, Resources: []*mcp.Resource{}}
	for _, r := range page {
		res.Resources = append(res.Resources, &mcp.Resource{
			Meta: entryMeta(r.Static), URI: r.URI, Name: cmp.Or(r.Name, r.URI), Title: r.Title, Description: r.Description, MIMEType: s.mime(r.MIMEType, ""),
		})
	}
	return res, nil
}

func (s *Server) listTemplates(ctx context.Context, cursor string) (mcp.Result, error) {
	l, err := s.listing(ctx)
	if err != nil {
		return nil, err
	}
	page, nextCursor, err := paginate(l.Templates, func(t listen.Template) string { return t.URITemplate }, cursor, s.opts.PageSize)
	if err != nil {
		return nil, err
	}
	res := &mcp.ListResourceTemplatesResult{Cacheable: uncached, NextCursor: nextCursor, ResourceTemplates: []*mcp.ResourceTemplate{}}
	for _, t := range page {
		res.ResourceTemplates = append(res.ResourceTemplates, &mcp.ResourceTemplate{
			Meta: entryMeta(t.Static), URITemplate: t.URITemplate, Name: cmp.Or(t.Name, t.URITemplate), Title: t.Title, Description: t.Description, MIMEType: s.mime(t.MIMEType, ""),
		})
	}
	return res, nil
}

func entryMeta(static bool) mcp.Meta {
	if static {
		return mcp.Meta{MetaWatchable: false}
	}
	return nil
}

// paginate returns the page that follows a cursor, in the order of the keys. A
// cursor holds the last key that was seen, so that a list which changes between
// two pages repeats nothing and skips nothing that stayed.
func paginate[T any](all []T, key func(T) string, cursor string, size int) (page []T, next string, err error) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	if cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || len(last) == 0 {
			return nil, "", newError(codeInvalidParams, "the cursor is not one of this server: list from the start, without a cursor", nil)
		}
		i, found := slices.BinarySearchFunc(all, string(last), func(e T, k string) int { return cmp.Compare(key(e), k) })
		if found {
			i++
		}
		all = all[i:]
	}
	if len(all) <= size {
		return all, "", nil
	}
	page = all[:size]
	return page, base64.RawURLEncoding.EncodeToString([]byte(key(page[size-1]))), nil
}

func (s *Server) readResource(ctx context.Context, p *mcp.ReadResourceParams, modern bool) (mcp.Result, error) {
	if err := s.permit(ctx, Read, p.URI); err != nil {
		return nil, err
	}
	after, err := afterOf(p.Meta)
	if err != nil {
		return nil, err
	}
	wanted, err := mimeOf(p.Meta)
	if err != nil {
		return nil, err
	}
	contents, err := s.reg.Read(ctx, p.URI, listen.ReadOptions{After: after})
	if err != nil {
		return nil, err
	}
	for i := range contents {
		contents[i].URI = cmp.Or(contents[i].URI, p.URI)
		contents[i].MIMEType = s.mime(contents[i].MIMEType, wanted)
	}
	return &readResult{ReadResourceResult: &mcp.ReadResourceResult{}, contents: contents, modern: modern}, nil
}

// mime is the media type under which a source's type is served.
func (s *Server) mime(of, wanted string) string {
	if of != listen.EventLogMIME {
		return of
	}
	return cmp.Or(wanted, s.opts.EventLogMIME)
}

// afterOf reads the cursor of an event log.
func afterOf(meta mcp.Meta) (*int64, error) {
	raw, ok := meta[MetaAfter]
	if !ok || raw == nil {
		return nil, nil
	}
	var n int64
	var err error
	switch v := raw.(type) {
	case float64:
		n = int64(v)
		// Over 2^53 a JSON number has lost its last digits on the way here.
		if float64(n) != v || n >= 1<<53 {
			err = strconv.ErrRange
		}
	case string:
		n, err = strconv.ParseInt(v, 10, 64)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || n < 0 {
		return nil, newError(codeInvalidParams, fmt.Sprintf("_meta %q must be the seq of an event: an integer of at least 0, over 2^53 as a string", MetaAfter), nil)
	}
	return &n, nil
}

// mimeOf reads the media type that a read asks for.
func mimeOf(meta mcp.Meta) (string, error) {
	raw, ok := meta[MetaEventLogMIME]
	if !ok {
		return "", nil
	}
	if v, _ := raw.(string); v == listen.EventLogMIME || v == listen.EventLogMIMECompat {
		return v, nil
	}
	return "", newError(codeInvalidParams, fmt.Sprintf("_meta %q must be %s or %s", MetaEventLogMIME, listen.EventLogMIME, listen.EventLogMIMECompat), nil)
}
