package app

import (
	"bytes"
	"context"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/scripted"
)

// N-19: a model loop that is started again under the same name knows what was
// said before.
func TestModelKnowsItsPast(t *testing.T) {
	t.Parallel()
	model, err := scripted.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	c := config.Default()
	c.Home = t.TempDir()
	for i, text := range []string{"SAY the word is tulip", "which word was it?"} {
		a, err := NewAgents(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		one, err := a.Start(t.Context(), AgentSpec{ID: "a", Model: Model{URL: model.URL(), Name: "scripted"}})
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := one.Session.Submit(agent.Input{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		body := model.Records()[i].Body
		if known := bytes.Contains(body, []byte(`"content":"the word is tulip"`)); known != (i == 1) {
			t.Errorf("request %d knows the past: %t\n%s", i, known, body)
		}
	}
}
