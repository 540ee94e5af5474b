package agent_test

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// A notice becomes a turn of the agent, and its owner hears that it was seen.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	scripted := agenttest.New(agenttest.Say("The owner of the note has changed."))
	terminal := &agenttest.Channel{Label: "terminal"}
	frame := func(notices []agent.Notice, _ bool) string {
		return "<watch-event>\n" + notices[0].Text + "\n</watch-event>"
	}
	session, err := agent.NewSession("s-1", scripted.New, agent.NewMemoryStore(0, 0), frame, &agent.Options{Channels: []agent.Channel{terminal}})
	if err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()

	seen := make(chan struct{})
	err = session.Notify(agent.Notice{ID: "n-1", Name: "notes", URI: "memo://notes", Text: "MODIFIED owner"}, func(ack agent.Ack) {
		fmt.Println("notice:", ack.State)
		if ack.State == agent.AckSeen {
			close(seen)
		}
	})
	if err != nil {
		panic(err)
	}
	<-seen
	if err := session.WaitIdle(ctx); err != nil {
		panic(err)
	}
	fmt.Println("agent:", terminal.Texts()[0])
	cancel()
	<-done
	// Output:
	// notice: woken
	// notice: seen
	// agent: The owner of the note has changed.
}
