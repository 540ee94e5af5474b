package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/attach"
)

func newSessionReport(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "report NAME", Short: "Tell which MCP servers the agent of a session really has, as far as was seen", Args: usage(cobra.ExactArgs(1)),
		Long: `Tell, for the newest start of the agent of a session, which MCP servers were
configured, which reached the agent, which it connected to, whose tools it listed
and used, and why one is missing. Nothing is claimed that nobody saw; the words are
explained in docs/attachments.md. It works without a process that serves, too.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], true, func(c *daemonClient) error {
				var r attach.Report
				if err := c.call(cmd.Context(), http.MethodGet, sessionPath(args[0], "attachments"), nil, &r); err != nil {
					return err
				}
				return e.printReport(&r)
			})
		},
	}
}

func (e *env) printReport(r *attach.Report) error {
	a := r.CurrentAttempt()
	if e.json || a == nil {
		return writeJSON(e.Out, r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, since %s\n", printable(a.SessionID), printable(cmp.Or(a.AgentID, "agent")), a.StartedAt.Local().Format(time.DateTime))
	fmt.Fprintf(&b, "session    %s\n", printable(sessionWords(a)))
	for i := range r.Attempts {
		if late := r.Attempts[i].LateTrafficAt; !late.IsZero() {
			fmt.Fprintf(&b, "late       somebody used the way in of an attempt that was over, %s\n", timeOfDay(late))
		}
	}
	if _, err := io.WriteString(e.Out, b.String()); err != nil {
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "SERVER\tSTATUS\tVIA\tTARGET\tTOOLS\tSEEN")
	for i := range a.Servers {
		s := &a.Servers[i]
		tools := ""
		if s.ToolCount != nil {
			tools = strconv.Itoa(*s.ToolCount)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(s.Name), printable(s.Status.Label()), printable(string(s.Transport)), printable(s.Target), tools,
			printable(strings.Join(checklist(s), ", ")))
		if why := why(s); why != "" {
			_, _ = fmt.Fprintf(table, "\t\t\t\t\t%s\n", printable(why))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if a.ServersTruncated {
		_, err := fmt.Fprintf(e.Out, "there are more than %d servers\n", attach.MaxServers)
		return err
	}
	return nil
}

// sessionWords says how the agent took what it was given.
func sessionWords(a *attach.Attempt) string {
	words := "not opened yet"
	switch {
	case a.SessionError != nil && a.SessionError.At.After(a.SessionAcceptedAt):
		words = "failed " + timeOfDay(a.SessionError.At) + ": " + cmp.Or(a.SessionError.Summary, a.SessionError.Reason.Text())
	case !a.SessionAcceptedAt.IsZero():
		words = "opened " + timeOfDay(a.SessionAcceptedAt)
	}
	if !a.SessionBlockedAt.IsZero() {
		words += ", blocked " + timeOfDay(a.SessionBlockedAt) + ": the agent waits for a server"
	}
	if !a.AgentEndedAt.IsZero() {
		words += ", the agent ended " + timeOfDay(a.AgentEndedAt)
	}
	return words
}

// checklist is what was seen of a server, with times.
func checklist(s *attach.Server) []string {
	var all []string
	add := func(what string, at time.Time) {
		if !at.IsZero() {
			all = append(all, what+" "+timeOfDay(at))
		}
	}
	add("configured", s.Steps[attach.ServerResolved].At)
	add("delivered", s.Steps[attach.ServerDelivered].At)
	connected := "connected"
	if s.Client != nil && s.Client.Name != "" {
		connected += " by " + s.Client.Name
	}
	add(connected, s.ConnectedAt)
	add("tools listed", s.ToolsListedAt)
	add("used", s.LastUsedAt)
	add("failed", s.FailedAt)
	add("disconnected", s.DisconnectedAt)
	if t := s.EndpointTest; t != nil {
		result := "cannot be reached"
		if t.Succeeded {
			result = "can be reached"
		}
		add(result+" from here", t.TestedAt)
	}
	return all
}

// why explains a status that is no success.
func why(s *attach.Server) string {
	if s.Reason == "" {
		return ""
	}
	text := s.Reason.Text()
	if s.Summary != "" {
		text += ": " + s.Summary
	}
	return text
}

func timeOfDay(t time.Time) string { return t.Local().Format(time.TimeOnly) }
