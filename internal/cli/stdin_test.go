package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ossicle/ossicle/internal/fleet"
)

// endless is an input that nobody ends, and that always has more.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestCommandInputIsSentWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	most := strings.Repeat("<line>\n", fleet.MaxStdin)[:fleet.MaxStdin]
	for _, text := range []string{"", "hi\n", "a\x00b", most} {
		if got, err := commandInput(t.Context(), strings.NewReader(text)); err != nil || got != text {
			t.Errorf("%d bytes: got %d, %v", len(text), len(got), err)
		}
	}
	for name, in := range map[string]io.Reader{
		"more than 2097152 bytes":     strings.NewReader(most + "x"),
		"which is the most":           endless{},
		"no UTF-8; send base64":       strings.NewReader("\xff"),
		"too many control characters": strings.NewReader(strings.Repeat("\x01", fleet.MaxStdin)),
	} {
		_, err := commandInput(t.Context(), in)
		if _, usage := errors.AsType[*usageError](err); !usage || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of an input that never comes a signal ends the wait.
func TestCommandInputEndsWithASignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := commandInput(ctx, in)
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("ended with %v before there was an end", err)
		default:
		}
		cancel()
		if err := <-done; !errors.Is(err, errInterrupted) {
			t.Errorf("ended with %v", err)
		}
		_ = w.Close()
	})
}
