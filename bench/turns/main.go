// Command turns measures how long a notice takes to become a prompt on the wire
// of an agent that is idle: posted to the durable inbox on SQLite, delivered to
// one of many sessions, written to the agent's pipe. The agents are real child
// processes that speak the Agent Client Protocol.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mockagent"
	"github.com/ossicle/ossicle/notice"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "mock-agent" {
		opts, err := mockagent.ParseModes([]string{"nomcp"})
		if err == nil {
			err = mockagent.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, opts)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	sessions := flag.Int("sessions", 100, "number of sessions")
	notices := flag.Int("notices", 600, "number of notices")
	rate := flag.Int("rate", 15, "notices a second; an agent takes twelve a minute")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if err := run(*sessions, *notices, *rate, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

// wire hears what is written to one agent, and tells of each prompt.
type wire struct{ prompts chan time.Time }

var sent, prompt = []byte(`"dir":"sent"`), []byte(`"session/prompt"`)

// Write implements io.Writer; it gets one recorded frame at a time.
func (w *wire) Write(frame []byte) (int, error) {
	if bytes.Contains(frame, sent) && bytes.Contains(frame, prompt) {
		select {
		case w.prompts <- time.Now():
		default:
		}
	}
	return len(frame), nil
}

func run(sessions, notices, rate int, asJSON bool) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := config.Default()
	c.Home = dir
	agents, err := app.NewAgents(ctx, c, nil)
	if err != nil {
		return err
	}
	defer func() { _ = agents.Close(ctx) }()
	wires := make([]*wire, sessions)
	for i := range wires {
		wires[i] = &wire{make(chan time.Time, 16)}
		w := wires[i]
		if _, err := agents.Start(ctx, app.AgentSpec{ID: id(i), Engine: func() (agent.Engine, error) {
			return acp.New([]string{self, "mock-agent"}, &acp.Options{Frames: w}), nil
		}}); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup // the first turn starts the agent
	errs := make(chan error, sessions)
	for i := range wires {
		wg.Go(func() {
			_, err := post(ctx, agents, wires[i], i)
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	took := make([]float64, 0, notices)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := range notices {
		<-tick.C
		d, err := post(ctx, agents, wires[n%sessions], n%sessions)
		if err != nil {
			return err
		}
		took = append(took, float64(d)/float64(time.Millisecond))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[min(len(took)-1, int(q*float64(len(took))))] }
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"sessions": sessions, "notices": notices, "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)})
	}
	fmt.Printf("%d sessions, %d notices at %d/s: notice to prompt on the wire p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
		sessions, notices, rate, at(0.5), at(0.99), at(1))
	return nil
}

func id(i int) string { return fmt.Sprintf("s%d", i) }

// post posts one notice and returns how long the prompt took to be written.
func post(ctx context.Context, agents *app.Agents, w *wire, i int) (time.Duration, error) {
	start := time.Now()
	if _, err := agents.Inbox.Post(ctx, notice.Notice{Agent: id(i), Source: notice.SourceWatch, Title: "bench", Text: "ADDED todo"}); err != nil {
		return 0, err
	}
	select {
	case at := <-w.prompts:
		return at.Sub(start), nil
	case <-time.After(3 * time.Minute):
		return 0, fmt.Errorf("no prompt for %s within three minutes", id(i))
	}
}
