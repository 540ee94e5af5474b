package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// TopicURIPrefix is what the URI of a topic of the feed begins with: the topic
// "builds" is read under "ossicle://feed/builds".
const TopicURIPrefix = "ossicle://feed/"

// Bounds of rights, so that a record of them is bounded too.
const (
	MaxPatterns = 64  // of one kind
	MaxPattern  = 512 // bytes
)

// Principal is who a token belongs to.
type Principal struct {
	Name   string
	Rights Rights
	// Expires is when the token ends; zero means never.
	Expires time.Time
	// TokenHash is [Token.Hash] of the stored token that the principal came with,
	// by itself or behind a ticket, and zero for everybody else. Whoever serves it
	// for long asks by it whether the token still stands.
	TokenHash [32]byte
}

// Rights are patterns of what a principal may use: a name as it is, a beginning
// with `*` behind it, or `*` alone for everything. Without a pattern it may use
// nothing of the kind.
type Rights struct {
	Topics   []string `json:"topics,omitempty"`   // what may be read and watched: URIs, for topics of the feed ossicle://feed/<topic>
	Publish  []string `json:"publish,omitempty"`  // topics of the feed that may be written
	Sessions []string `json:"sessions,omitempty"` // session ids
	Tools    []string `json:"tools,omitempty"`    // tool names
}

// AllRights are the rights to everything.
func AllRights() Rights {
	all := []string{"*"}
	return Rights{Topics: all, Publish: all, Sessions: all, Tools: all}
}

// Topic reports whether a URI may be read and watched.
func (r Rights) Topic(uri string) bool { return match(r.Topics, uri) }

// MayPublish reports whether a topic of the feed may be written.
func (r Rights) MayPublish(topic string) bool { return match(r.Publish, topic) }

// MayRead reports whether a topic of the feed may be read.
func (r Rights) MayRead(topic string) bool { return match(r.Topics, TopicURIPrefix+topic) }

// MayReadAll reports whether every topic of the feed may be read that a pattern
// selects: a topic, or a beginning with `*` behind it.
func (r Rights) MayReadAll(pattern string) bool {
	prefix, open := strings.CutSuffix(TopicURIPrefix+pattern, "*")
	if !open {
		return match(r.Topics, prefix)
	}
	return slices.ContainsFunc(r.Topics, func(p string) bool {
		allowed, ok := strings.CutSuffix(p, "*")
		return ok && strings.HasPrefix(prefix, allowed)
	})
}

// Session reports whether a session may be used.
func (r Rights) Session(id string) bool { return match(r.Sessions, id) }

// Tool reports whether a tool may be called.
func (r Rights) Tool(name string) bool { return match(r.Tools, name) }

// Union returns these rights and those of other.
func (r Rights) Union(other Rights) Rights {
	join := func(a, b []string) []string { return append(slices.Clone(a), b...) }
	return Rights{
		Topics: join(r.Topics, other.Topics), Publish: join(r.Publish, other.Publish),
		Sessions: join(r.Sessions, other.Sessions), Tools: join(r.Tools, other.Tools),
	}
}

// Check returns an error for rights that cannot be meant or kept.
func (r Rights) Check() error {
	for _, kind := range []struct {
		name     string
		patterns []string
	}{{"topics", r.Topics}, {"publish", r.Publish}, {"sessions", r.Sessions}, {"tools", r.Tools}} {
		if len(kind.patterns) > MaxPatterns {
			return fmt.Errorf("rights: %s has %d patterns and %d are allowed", kind.name, len(kind.patterns), MaxPatterns)
		}
		for _, p := range kind.patterns {
			if p == "" || len(p) > MaxPattern || strings.Contains(strings.TrimSuffix(p, "*"), "*") || !printable(p) {
				return fmt.Errorf("rights: %s pattern %q: the form is a name, or a beginning with one * behind it, of at most %d bytes", kind.name, p, MaxPattern)
			}
		}
	}
	return nil
}

// Encode returns rights as JSON, for a [Store] to keep.
func (r Rights) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode rights: %w", err)
	}
	return b, nil
}

// ParseRights reads what Encode has written. A kind of right that it does not
// know is an error: whoever wrote it may have meant it to narrow the others.
func ParseRights(b []byte) (Rights, error) {
	var r Rights
	if err := json.Unmarshal(b, &r, json.RejectUnknownMembers(true)); err != nil {
		return Rights{}, fmt.Errorf("parse rights: %w", err)
	}
	return r, nil
}

func match(patterns []string, name string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) || p == name {
			return true
		}
	}
	return false
}
