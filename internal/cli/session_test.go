package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
)

// Of a turn that was cut off it may not be known when it began.
func TestTroubleWithoutABeginning(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Streams: Streams{Out: out}}
	s := &app.SessionInfo{Status: agent.Status{Meta: agent.Meta{ID: "a"}, State: "stopped", Trouble: &agent.Trouble{Kind: agent.TroubleCutOff, Text: "It was cut off."}}}
	if err := e.printSession(s); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out.Name())
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), "\ntrouble    It was cut off.\n") {
		t.Errorf("%q", got)
	}
}

// An address may hold a password, or a ticket.
func TestRefusedTokenRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{true, false} {
		got := refusedToken(given, "https://me:hunter2@host:1/v1/events?topic=x&ticket=hunter2#hunter2")
		if strings.Contains(got, "hunter2") || !strings.HasPrefix(got, "https://host:1/v1/events ") {
			t.Errorf("%q", got)
		}
	}
}
