package notice

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// Source says which part of ossicle a notice comes from.
type Source string

// Sources.
const (
	SourceWatch  Source = "watch"
	SourceSignal Source = "signal"
	SourceFeed   Source = "feed"
	SourceWorker Source = "worker"
	SourceSystem Source = "system"
)

// Keys of Notice.Meta that frames show. Others are kept and not shown.
const (
	MetaURI  = "uri"  // what changed, for watches and feeds
	MetaFrom = "from" // who sent it, for signals
)

// Bounds of a notice, in bytes. Title and text are cut at a rune's edge and end
// in "…"; meta over its bounds, and a name or id that breaks its own, are
// errors.
const (
	MaxAgent   = 128
	MaxID      = 128
	MaxTitle   = 256
	MaxText    = 64 << 10
	MaxMeta    = 16 // entries
	MaxMetaLen = 4 << 10
	// maxKey bounds a stored dedupe key; longer ones are kept as their hash.
	maxKey = 256
)

// Notice is something that an agent should know (specification D-1).
type Notice struct {
	// ID is stable and unique over all inboxes. Post makes one if it is empty.
	ID string `json:"id"`
	// Agent is the addressee: letters, digits, "_", ".", "-", at most 128.
	Agent  string `json:"agent"`
	Source Source `json:"source"`
	// Title names the origin in a few words: for a watch, the watch's name.
	Title string `json:"title,omitzero"`
	// Text is what there is to say, in lines. It is untrusted data.
	Text string            `json:"text"`
	Meta map[string]string `json:"meta,omitzero"`
	// CreatedAt is when it happened; Post fills in the present.
	CreatedAt time.Time `json:"created_at"`
	// DedupeKey makes a second Post of the same thing change nothing. It counts
	// per addressee; empty means the id.
	DedupeKey string `json:"dedupe_key,omitzero"`
	// Quiet keeps the notice from causing a turn: it is shown in one that runs
	// anyway, by a tool's result, or by a hook. It is no part of the record.
	Quiet bool `json:"-"`
	// Depth counts the turns of agents that led to this notice: 0 for the world
	// outside, one more than the causing notice's otherwise.
	Depth int `json:"depth,omitzero"`
}

// LogValue tells what a log may know of a notice: never what it says
// (specification D-8).
func (n Notice) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", n.ID), slog.String("agent", n.Agent), slog.String("source", string(n.Source)),
		slog.Int("size", len(n.Text)), slog.Int("depth", n.Depth))
}

// NewID returns an unguessable id of 18 characters, with 80 bits of chance.
func NewID() string { return "n_" + strings.ToLower(rand.Text()[:16]) }

// prepare fills in what may be left out, cuts what is too long, and refuses
// what cannot be kept.
func (n Notice) prepare(now time.Time) (Notice, error) {
	if err := CheckAgent(n.Agent); err != nil {
		return n, err
	}
	switch n.Source {
	case SourceWatch, SourceSignal, SourceFeed, SourceWorker, SourceSystem:
	default:
		return n, &InvalidError{Field: "source", Problem: fmt.Sprintf("%q is none of watch, signal, feed, worker, system", n.Source)}
	}
	if n.ID == "" {
		n.ID = NewID()
	}
	if !validName(n.ID, MaxID) {
		return n, &InvalidError{Field: "id", Problem: "it is not 1 to 128 letters, digits, \"_\", \".\" or \"-\""}
	}
	if n.Depth < 0 {
		return n, &InvalidError{Field: "depth", Problem: "it is negative"}
	}
	if err := checkMeta(n.Meta); err != nil {
		return n, err
	}
	n.Title = cut(strings.ToValidUTF8(n.Title, "\uFFFD"), MaxTitle)
	n.Text = cut(strings.ToValidUTF8(n.Text, "\uFFFD"), MaxText)
	if n.CreatedAt.IsZero() {
		n.CreatedAt = now
	}
	n.CreatedAt = n.CreatedAt.UTC()
	if n.DedupeKey == "" {
		n.DedupeKey = n.ID
	}
	if len(n.DedupeKey) > maxKey {
		sum := sha256.Sum256([]byte(n.DedupeKey))
		n.DedupeKey = "sha256:" + hex.EncodeToString(sum[:])
	}
	return n, nil
}

func checkMeta(meta map[string]string) error {
	if len(meta) > MaxMeta {
		return &InvalidError{Field: "meta", Problem: fmt.Sprintf("it has %d entries and %d are allowed", len(meta), MaxMeta)}
	}
	size := 0
	for k, v := range meta {
		size += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return &InvalidError{Field: "meta", Problem: "it is not valid UTF-8"}
		}
	}
	if size > MaxMetaLen {
		return &InvalidError{Field: "meta", Problem: fmt.Sprintf("it has %d bytes and %d are allowed", size, MaxMetaLen)}
	}
	return nil
}

// CheckAgent returns an *InvalidError for a name that no agent can have.
func CheckAgent(agent string) error {
	if !validName(agent, MaxAgent) {
		return &InvalidError{Field: "agent", Problem: "it is not 1 to 128 letters, digits, \"_\", \".\" or \"-\""}
	}
	return nil
}

// validName holds names to what is safe in paths, environments and attributes.
func validName(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for _, c := range []byte(s) {
		ok := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
		if !ok {
			return false
		}
	}
	return true
}

// cut shortens s to limit bytes at a rune's edge; what was cut ends in "…".
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
