package pageserver

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page of the protocol names what there is, with the bounds that hold.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/live.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	want := []string{
		Subprotocol, TicketsPath, Path, actionSubscribe, actionUnsubscribe, ActionTestEndpoint, ActionRecentOutput, ActionInput, ActionResize,
		fmt.Sprintf("for %v s: `GET", ticketLife.Seconds()),
		fmt.Sprintf("| subscriptions of a connection | %d |", MaxSubscriptions),
		fmt.Sprintf("| requests under way | %d |", MaxCalls),
		fmt.Sprintf("%d KiB, else close 1009", MaxMessage>>10),
		fmt.Sprintf("and %d MiB, then `gap`", DefaultBytes>>20),
		fmt.Sprintf("| one write | %v s,", DefaultWriteTime.Seconds()),
		fmt.Sprintf("every %v s, %v s for the answer", DefaultPing.Seconds(), DefaultPingWait.Seconds()),
		"`" + refusedPrefix + "` are `" + string(CodeRefused) + "`",
	}
	for _, code := range []Code{CodeBadRequest, CodeForbidden, CodeNotFound, CodeUnavailable, CodeRefused, CodeTooMany, CodeFailed, CodeTimeout} {
		want = append(want, "`"+string(code)+"`")
	}
	for kind, carries := range kinds {
		name := string(kind)
		if carries {
			name += ":ID"
		}
		want = append(want, "| `"+name+"` |")
	}
	for _, code := range []int{int(closeGone), int(closeBinary), int(closeOver), int(closeSlow)} {
		want = append(want, fmt.Sprint(code))
	}
	for _, words := range want {
		if !strings.Contains(page, words) {
			t.Errorf("docs/reference/live.md does not say %q", words)
		}
	}
}
