package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/memo"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/internal/pty"
	"github.com/ossicle/ossicle/internal/scripted"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// The page that tells what is kept has the numbers of the code.
func TestDocumentedRetention(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations/retention.md")
	if err != nil {
		t.Fatal(err)
	}
	days := func(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }
	count := func(n int64) string { // as people write it
		s := fmt.Sprint(n)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	}
	size := func(n int64) string {
		for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
			if n%1024 != 0 || unit == "GiB" {
				return fmt.Sprint(n, " ", unit)
			}
			n /= 1024
		}
		return ""
	}
	for row, numbers := range map[string][]string{
		"events of a topic":             {count(config.DefaultRetentionCount), size(config.DefaultRetentionBytes), days(config.DefaultRetentionAge)},
		"names of topics":               {days(feed.ForgetAfter), count(feed.MaxTopics)},
		"notices of an agent":           {days(notice.DefaultPendingAge), days(notice.DefaultDoneAge), count(notice.DefaultKeep)},
		"that a notice was there":       {days(notice.DefaultKeyAge)},
		"sessions of agents":            {count(sqlite.DefaultSessions), size(sqlite.DefaultTotalBytes), count(sqlite.DefaultEntries), size(sqlite.DefaultTranscriptBytes)},
		"attachment reports":            {count(sqlite.KeepReports), fmt.Sprint(evidence.MaxEvidence)},
		"signals that everybody":        {count(mailbox.DefaultKeepCount), size(mailbox.DefaultKeepBytes), days(mailbox.DefaultKeepAge)},
		"signals that somebody":         {count(mailbox.DefaultKeepCount), size(mailbox.DefaultKeepBytes)},
		"notes of a collaboration":      {count(mailbox.MaxNotes), size(mailbox.MaxNoteBytes)},
		"its whiteboard":                {count(mailbox.MaxEntries), size(mailbox.MaxValue)},
		"its members":                   {count(mailbox.MaxMembers)},
		"a collaboration session":       {days(config.DefaultUnused)},
		"tokens":                        {days(access.KeepEnded)},
		"sandboxes that are over":       {count(worker.KeepFinal)},
		"hosts of sandboxes":            {fmt.Sprint(worker.KeepHost.Hours(), " hours")},
		"the audit of sandboxes":        {count(worker.DefaultAuditSession), count(worker.DefaultAuditTotal), days(worker.DefaultAuditAge)},
		"artifacts of sandboxes":        {days(gateway.DefaultKeep), size(gateway.DefaultTotal), count(gateway.DefaultSessionFiles), size(gateway.DefaultSessionQuota)},
		"watches, places":               {days(leftoverAge)},
		"the notes of":                  {count(memo.DefaultMaxKeys), size(memo.DefaultMaxBytes)},
		"messages for a connection":     {count(pageserver.DefaultMessages), size(pageserver.DefaultBytes)},
		"inputs and notices that wait":  {fmt.Sprint(agent.DefaultInputs), fmt.Sprint(agent.DefaultNotices)},
		"the last output of an agent |": {fmt.Sprint(outputLines, " lines"), size(outputBytes)},
		"the last output of an agent's": {size(pty.DefaultScrollback)},
		"requests that the scripted":    {count(scripted.DefaultKept)},
	} {
		_, rest, found := strings.Cut(string(text), "\n| "+row)
		line, _, _ := strings.Cut(rest, "\n")
		if !found {
			t.Errorf("there is no row %q", row)
		}
		for _, number := range numbers {
			if !strings.Contains(line, number) {
				t.Errorf("row %q does not say %q: %s", row, number, line)
			}
		}
	}
}
