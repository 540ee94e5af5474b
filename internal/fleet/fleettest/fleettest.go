// Package fleettest makes sandboxes of which nothing is real but their workers, which
// run in this process and speak the channel.
package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/worker"
)

// Tier is that of the sandboxes.
const Tier = "fake"

// patience bounds every wait for something that should happen at once.
const patience = 30 * time.Second

// Boxes make sandboxes. The zero value is ready. Whoever has closed the fleet waits
// for them.
type Boxes struct {
	// Made counts the sandboxes, Fails those that still cannot be made.
	Made, Fails atomic.Int64
	// Control is what workers dial, if it is not the fleet's socket. It is set before
	// a sandbox is made.
	Control string
	// Late workers begin when Come says so.
	Late bool

	work   sync.WaitGroup
	mu     sync.Mutex
	exited func(session, detail string)
	stop   map[string]context.CancelFunc
	late   map[string]fleet.Spec
}

// Drivers are those of fleet.Options for the driver that is local.
func (b *Boxes) Drivers() map[string]fleet.NewDriver {
	return map[string]fleet.NewDriver{config.DriverLocal: func(_ context.Context, _ *config.Sandbox, home fleet.Home) (fleet.Driver, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.exited = home.Exited
		return &driver{Boxes: b, socket: home.Socket}, nil
	}}
}

// Wait waits until no worker is left.
func (b *Boxes) Wait() { b.work.Wait() }

// Kinds are two kinds of sandboxes whose waits are short: "quick", which is soon idle,
// and "slow", which is not.
func Kinds() map[string]config.Sandbox {
	p := worker.Light()
	p.Name = "quick"
	p.Budgets.Handshake, p.Dial = 20*time.Second, 60*time.Second
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = 100*time.Millisecond, 10*time.Second
	p.Budgets.Idle = 300 * time.Millisecond
	quick := config.Sandbox{Profile: p, Driver: config.DriverLocal}
	slow := quick
	slow.Name, slow.Budgets.Idle = "slow", worker.DefaultBudgets().Idle
	return map[string]config.Sandbox{quick.Name: quick, slow.Name: slow}
}

// Start makes a sandbox and waits until it runs.
func Start(t *testing.T, f *fleet.Fleet, id, profile string) *worker.Session {
	t.Helper()
	s, err := f.Start(t.Context(), id, profile, "")
	if err != nil {
		t.Fatal(err)
	}
	Await(t, s)
	return s
}

// Await waits until a sandbox runs.
func Await(t *testing.T, s *worker.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Running(ctx); err != nil {
		t.Fatal(err)
	}
}

// driver is Boxes as a fleet has them.
type driver struct {
	*Boxes

	socket string
}

// Traits implements fleet.Driver.
func (d *driver) Traits() fleet.Traits {
	control := d.Control
	if control == "" {
		control = "unix://" + d.socket
	}
	return fleet.Traits{Tier: Tier, Control: control}
}

// Create implements fleet.Driver.
func (d *driver) Create(_ context.Context, s fleet.Spec) error {
	if d.Fails.Add(-1) >= 0 {
		return errors.New("no more of them")
	}
	d.Made.Add(1)
	if !d.Late {
		return d.run(s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late == nil {
		d.late = map[string]fleet.Spec{}
	}
	d.late[s.Session] = s
	return nil
}

// Come begins the worker of a sandbox that was made Late.
func (b *Boxes) Come(session string) error {
	b.mu.Lock()
	s, made := b.late[session]
	delete(b.late, session)
	b.mu.Unlock()
	if !made {
		return fmt.Errorf("no worker of %q is late", session)
	}
	return b.run(s)
}

func (b *Boxes) run(s fleet.Spec) error {
	env, err := worker.ReadEnvironment(func(name string) (string, bool) {
		if name == worker.EnvToken {
			return s.Token, true
		}
		v, ok := s.Env[name]
		return v, ok
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil {
		b.stop = map[string]context.CancelFunc{}
	}
	b.stop[s.Session] = stop
	exited := b.exited
	b.work.Go(func() {
		exit := worker.New(tools(s.Session), env, nil).Run(ctx)
		exited(s.Session, fmt.Sprintf("exit code %d", exit.Code))
	})
	return nil
}

// Delete implements fleet.Driver.
func (d *driver) Delete(_ context.Context, session string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stop := d.stop[session]; stop != nil {
		stop()
	}
	return nil
}

// Kill implements fleet.Driver.
func (d *driver) Kill(ctx context.Context, session string) error { return d.Delete(ctx, session) }

// Close implements fleet.Driver.
func (d *driver) Close(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stop {
		stop()
	}
	return nil
}

// tools are exec, which says what it was asked and where, and file, which fails.
func tools(session string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
	type args struct {
		Command    string `json:"command,omitempty"`
		Background bool   `json:"background,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "exec", Description: "Run a command."}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		said := a.Command + " in " + session
		answer, err := json.Marshal(map[string]any{"exit_code": 0, "session": session, "job": said})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}, StructuredContent: json.RawMessage(answer)}, nil, err
	})
	mcp.AddTool(server, &mcp.Tool{Name: "file"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("no such file")
	})
	return server
}
