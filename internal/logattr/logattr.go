// Package logattr names every attribute that a log line may carry, so that one
// thing has one key everywhere. Values that come from outside are strings that
// slog quotes; payloads never become attributes.
package logattr

import (
	"log/slog"
	"time"
)

// Watch is the name of a watch.
func Watch(name string) slog.Attr { return slog.String("watch", name) }

// URI is the address of a resource.
func URI(uri string) slog.Attr { return slog.String("uri", uri) }

// Server is the configured name of an MCP server.
func Server(name string) slog.Attr { return slog.String("server", name) }

// Tool is the name of a tool.
func Tool(name string) slog.Attr { return slog.String("tool", name) }

// Session is the id of a session.
func Session(id string) slog.Attr { return slog.String("session", id) }

// Err is the error that a line reports; nil is the empty string.
func Err(err error) slog.Attr {
	if err == nil {
		return slog.String("error", "")
	}
	return slog.String("error", err.Error())
}

// Reason says why, in a few constant words.
func Reason(s string) slog.Attr { return slog.String("reason", s) }

// Event is the type of a watched event, for instance "MODIFIED".
func Event(kind string) slog.Attr { return slog.String("event", kind) }

// Kept says whether an event became a line.
func Kept(kept bool) slog.Attr { return slog.Bool("kept", kept) }

// Count is a number of things, said by the message.
func Count(n int) slog.Attr { return slog.Int("count", n) }

// Lines is the number of lines of a notice.
func Lines(n int) slog.Attr { return slog.Int("lines", n) }

// Size is a number of bytes.
func Size(n int64) slog.Attr { return slog.Int64("size", n) }

// Attempt counts tries, from 1.
func Attempt(n int) slog.Attr { return slog.Int("attempt", n) }

// Delay is the time until the next try.
func Delay(d time.Duration) slog.Attr { return slog.Duration("delay", d) }

// Duration is the time that something took.
func Duration(d time.Duration) slog.Attr { return slog.Duration("duration", d) }

// PID is a process id.
func PID(pid int) slog.Attr { return slog.Int("pid", pid) }

// Addr is a network address that we listen on.
func Addr(addr string) slog.Attr { return slog.String("addr", addr) }
