package mcpclient

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// An error of a server that cannot be reached names its host, and nothing of a URL
// that may be secret: errors are logged, and told to models.
func TestErrorsHoldNoPath(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	pool, err := NewPool([]Spec{{Name: "s", URL: "http://user:CANARY@127.0.0.1:1/CANARY?key=CANARY", Headers: map[string]string{"X": "CANARY"}}}, &Options{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Servers()[0].Entries(t.Context())
	pool.Close()
	if !errors.As(err, new(*ConnectError)) || !strings.Contains(err.Error(), "http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error()+log.String(), "CANARY") {
		t.Errorf("the error %v, or the log tells a secret: %s", err, log.String())
	}
}
