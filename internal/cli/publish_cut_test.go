package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// What an answer that ends too early leaves open is said, and a signal is no failure of
// the server.
func TestAnAnswerThatIsCutShort(t *testing.T) {
	t.Parallel()
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	e := &env{Streams: Streams{Out: out}}
	cut := `{"epoch":"e","receipts":[{"id":1}]}` + "\n" + `{"epoch":"e","rec`
	err = e.printReceipts(t.Context(), strings.NewReader(cut))
	if code := exitCode(t.Context(), err); code != exitUnreachable || !strings.Contains(err.Error(), "--idempotency-key") {
		t.Errorf("code %d, %v", code, err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := e.printReceipts(ctx, strings.NewReader(cut)); !errors.Is(err, errInterrupted) {
		t.Errorf("after a signal: %v", err)
	}
	if err := e.printReceipts(ctx, strings.NewReader("")); err != nil {
		t.Errorf("a whole answer: %v", err)
	}
}
