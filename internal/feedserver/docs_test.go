package feedserver

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
)

// F-5: the numbers of the API's page are those of the code.
func TestThePageHasTheNumbers(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/reference/feed-http.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(b)), " ")
	for _, want := range []string{
		fmt.Sprintf("| data, compact | %d bytes |", feed.MaxData),
		fmt.Sprintf("| type; key and idempotency key | %d; %d bytes", feed.MaxType, feed.MaxKey),
		fmt.Sprintf("| array | %d events |", feed.MaxBatch),
		fmt.Sprintf("| topics | %d in all | 507 for one that is new |", feed.MaxTopics),
		fmt.Sprintf("| JSON body | %d bytes |", MaxBody),
		fmt.Sprintf("| line of NDJSON | %d bytes |", maxLine),
		fmt.Sprintf("| silence in a body | %v |", DefaultBodySilent),
		fmt.Sprintf("| bodies held at the same time | %d bytes | 503 after %v |", DefaultBodyBytes, bodyWait),
		fmt.Sprintf("behind them, %d at most", feed.MaxPatterns),
		fmt.Sprintf("retry: %d", DefaultRetry.Milliseconds()),
		fmt.Sprintf("After %v of silence", DefaultHeartbeat),
		fmt.Sprintf("within %v is cut. The kernel takes %d KiB", DefaultWriteTime, sendBuffer>>10),
		fmt.Sprintf("`retry:` of %d to %d ms, spread over %v", leastRetry.Milliseconds(), mostRetry.Milliseconds(), DefaultSpread),
		fmt.Sprintf("(0s to %v)", maxWait),
		fmt.Sprintf("about %d bytes of data", answerBytes),
		fmt.Sprintf("It lets in for %v", access.DefaultTicketLife),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, r := range []feed.Reason{feed.Evicted, feed.Slow, feed.Epoch, feed.Future} {
		if !strings.Contains(page, "| `"+string(r)+"` |") {
			t.Errorf("the page does not tell of the reason %s", r)
		}
	}
	// Tokens that are remembered for a while, and then asked for again.
	if within := DefaultRecheck + 10*time.Second; within > 30*time.Second {
		t.Errorf("a revoked token lives for %v", within)
	}
}
