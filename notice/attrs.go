package notice

import (
	"log/slog"
	"strings"

	"github.com/ossicle/ossicle/internal/logattr"
)

// What a log may know of notices: names and numbers, never what they say
// (specification D-8).

func attrAgent(agent string) slog.Attr   { return slog.String("agent", agent) }
func attrNotice(id string) slog.Attr     { return slog.String("notice", id) }
func attrSource(s Source) slog.Attr      { return slog.String("source", string(s)) }
func attrState(s State) slog.Attr        { return slog.String("state", string(s)) }
func attrAdapter(name string) slog.Attr  { return slog.String("adapter", name) }
func attrDelivery(id string) slog.Attr   { return slog.String("delivery", id) }
func attrDepth(n int) slog.Attr          { return slog.Int("depth", n) }
func attrErr(err error) slog.Attr        { return logattr.Err(err) }
func attrCount(n int) slog.Attr          { return logattr.Count(n) }
func attrReason(reason string) slog.Attr { return logattr.Reason(reason) }

// attrNotices names at most ten.
func attrNotices(ids []string) slog.Attr {
	s := strings.Join(ids[:min(len(ids), 10)], ",")
	if len(ids) > 10 {
		s += ",+" + itoa(len(ids)-10)
	}
	return slog.String("notices", s)
}
