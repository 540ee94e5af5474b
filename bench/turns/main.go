// Command turns measures how long a notice takes to become a prompt on the wire
// of an agent that is idle: posted to the durable inbox on SQLite, delivered to
// one of many sessions, written to the agent's pipe. The agents are real child
// processes, ossicle's own mock agent, that speak the Agent Client Protocol.
//
// Each notice is measured twice: when its prompt is handed to the pipe, and when
// the agent has read it. The baseline beside it, in the same run and on the same
// disk, is what cannot be saved: a notice posted to an inbox that nobody serves,
// and a line of the same length written to the pipe of a bare child.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/notice"
)

// patience bounds the wait for one prompt; the first starts the agent.
const patience = 3 * time.Minute

func main() {
	if len(os.Args) > 1 {
		if child := children[os.Args[1]]; child != nil {
			exit(child())
			return
		}
	}
	var o options
	flag.IntVar(&o.sessions, "sessions", 100, "number of sessions")
	flag.IntVar(&o.rounds, "rounds", 5, "notices of each session, one at a time and all at once; an agent takes twelve a minute")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Parse()
	exit(run(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

type options struct {
	sessions, rounds int
	json             bool
}

// bench is the sessions and the wires of their agents.
type bench struct {
	agents *app.Agents
	wires  []*wire
}

func run(o options) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b, err := start(ctx, dir, o.sessions)
	if err != nil {
		return err
	}
	defer func() { _ = b.agents.Close(ctx) }()
	bare, err := newPipe()
	if err != nil {
		return err
	}
	defer bare.close()

	if _, err := b.burst(ctx); err != nil { // the first turn starts the agent
		return err
	}
	var r result
	r.Sessions = o.sessions
	for range o.rounds {
		for i := range b.wires {
			if err := b.one(ctx, i, bare, &r); err != nil {
				return err
			}
		}
	}
	for range o.rounds {
		all, err := b.burst(ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			r.burst.add(s.written)
		}
	}
	return r.print(o.json)
}

func start(ctx context.Context, dir string, sessions int) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := config.Default()
	c.Home = dir
	agents, err := app.NewAgents(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	b := &bench{agents: agents}
	for i := range sessions {
		w := newWire()
		b.wires = append(b.wires, w)
		_, err := agents.Start(ctx, app.AgentSpec{ID: id(i), Profile: agent.Profile{Dir: dir}, Engine: func() (agent.Engine, error) {
			return acp.New([]string{self, agentChild}, &acp.Options{Frames: w}), nil
		}})
		if err != nil {
			return nil, err
		}
	}
	return b, agents.Inbox.Register(ctx, nobody)
}

// nobody is an agent whose inbox no one serves.
const nobody = "nobody"

func id(i int) string { return fmt.Sprintf("s%d", i) }

// sample is what one notice took.
type sample struct{ written, read time.Duration }

// one measures a notice by itself, and its baseline right before.
func (b *bench) one(ctx context.Context, i int, bare *pipe, r *result) error {
	began := time.Now()
	if err := b.post(ctx, nobody); err != nil {
		return err
	}
	posted := time.Since(began)
	written, read, err := bare.send(b.wires[i].length())
	if err != nil {
		return err
	}
	r.postOnly.add(posted)
	r.pipeOnly.add(read)
	r.floor.add(posted + written)
	s, err := b.wake(ctx, i)
	if err != nil {
		return err
	}
	r.written.add(s.written)
	r.read.add(s.read)
	return nil
}

// burst measures a notice to every session at one instant.
func (b *bench) burst(ctx context.Context) ([]sample, error) {
	samples, errs := make([]sample, len(b.wires)), make([]error, len(b.wires))
	var all sync.WaitGroup
	for i := range b.wires {
		all.Go(func() { samples[i], errs[i] = b.wake(ctx, i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return samples, nil
}

func (b *bench) post(ctx context.Context, agent string) error {
	_, err := b.agents.Inbox.Post(ctx, notice.Notice{Agent: agent, Source: notice.SourceWatch, Title: "bench", Text: "ADDED todo"})
	return err
}

// wake posts one notice and waits for the end of its turn, so that the next one
// finds the agent idle.
func (b *bench) wake(ctx context.Context, i int) (sample, error) {
	w, began := b.wires[i], time.Now()
	if err := b.post(ctx, id(i)); err != nil {
		return sample{}, err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var s sample
	for _, step := range []struct {
		at   chan time.Time
		into *time.Duration
	}{{w.written, &s.written}, {w.read, &s.read}, {w.ended, new(time.Duration)}} {
		select {
		case at := <-step.at:
			*step.into = at.Sub(began)
		case <-timer.C:
			return sample{}, fmt.Errorf("no prompt for %s within %v", id(i), patience)
		}
	}
	return s, b.settled(ctx, id(i))
}

// settled waits until the inbox has nothing pending: the turn is over.
func (b *bench) settled(ctx context.Context, agent string) error {
	for deadline := time.Now().Add(patience); ; {
		s, err := b.agents.Inbox.Status(ctx, agent)
		switch {
		case err != nil:
			return err
		case s.Pending == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the notice of %s is not seen within %v", agent, patience)
		}
		time.Sleep(time.Millisecond) // the store has no ears of its own
	}
}
