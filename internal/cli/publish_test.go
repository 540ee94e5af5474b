package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// A signal ends publish while it waits for its standard input and the server for it:
// nobody else would end it.
func TestPublishEndsWithContext(t *testing.T) {
	t.Parallel()
	began, over := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-over
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	in, silent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = silent.Close() })
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	home := t.TempDir()
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, []string{"publish", "a", "-", "--url", server.URL}, Streams{In: in, Out: null, Err: null}, func(name string) (string, bool) {
			if name != "OSSICLE_HOME" {
				return "", false
			}
			return home, true
		})
	}()
	select {
	case <-began:
	case code := <-ended:
		t.Fatalf("it ended with %d", code)
	case <-time.After(time.Minute):
		t.Fatal("no request came")
	}
	cancel()
	select {
	case code := <-ended:
		if code != exitInterrupted {
			t.Errorf("code %d, want %d", code, exitInterrupted)
		}
	case <-time.After(time.Minute): // of a real clock: it waits for a real connection
		t.Error("it goes on after the signal")
	}
}
