package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// engine is the real interpreter. Without it these tests prove nothing.
func engine(t *testing.T) *monty.Engine {
	t.Helper()
	path, err := monty.Find(nil)
	if err != nil {
		if os.Getenv("OSSICLE_REQUIRE_MONTY") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	e, err := monty.New(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// rig is the watch engine with the real interpreter, on a server in memory.
func rig(t *testing.T) (*watch.Manager, *watchtest.Server, *watchtest.Sink) {
	t.Helper()
	server, sink := watchtest.NewServer("s"), watchtest.NewSink()
	m := watch.NewManager([]watch.Server{server}, engine(t), sink, &watch.Options{
		Limits: watch.Limits{Quiet: time.Millisecond, FilterTime: 4 * time.Second}, // of which a good filter takes a thousandth, unless the machine is busy
	})
	t.Cleanup(func() { _ = m.Close() })
	return m, server, sink
}

// The filter of the first users, on Kubernetes-like objects, in a scope that
// remembers.
//
// W-069, W-080, W-083, W-084.
func TestFilterInRealPython(t *testing.T) {
	t.Parallel()
	m, server, sink := rig(t)
	log := watchtest.NewLog(server, "log://pods", "a", 16)
	if _, err := m.Start(t.Context(), watch.StartRequest{Name: "pods", URI: "log://pods", OnEvent: `
try:
    count += 1
except NameError:
    count = 1
m = event["object"]["metadata"]
f'{count} {event["type"].lower()} {m["namespace"]}/{m["name"]}' if event["type"] in ("ADDED", "DELETED") else None
`}); err != nil {
		t.Fatal(err)
	}
	object := func(kind, name string) string {
		return fmt.Sprintf(`"type":%q,"object":{"metadata":{"uid":%q,"namespace":"default","name":%q}}`, kind, name, name)
	}
	log.Push(object("ADDED", "one"))
	if got := sink.Next(t).Text(); got != "1 added default/one" {
		t.Errorf("got %q", got)
	}
	log.Push(object("BOOKMARK", "one"), object("DELETED", "one"))
	if got := sink.Next(t).Text(); got != "3 deleted default/one" {
		t.Errorf("got %q", got)
	}
}

// Hostile programs end within their limits, are told as lines, and harm neither
// their neighbours nor the engine.
//
// W-085, W-086, W-088.
func TestHostileFilters(t *testing.T) {
	t.Parallel()
	m, server, sink := rig(t)
	server.Add("mem://good", "application/json", `{"n":0}`)
	if _, err := m.Start(t.Context(), watch.StartRequest{Name: "good", URI: "mem://good", OnEvent: `f"n is {event['new']}"`}); err != nil {
		t.Fatal(err)
	}
	// The bombs are armed by the real event only: the dry run's sample lacks it.
	for name, bomb := range map[string]string{
		"loop":      "while True:\n        pass",
		"memory":    "x = [0] * 10**10",
		"digits":    "x = 10**10**8",
		"recursion": "def f(n):\n        return f(n + 1)\n    f(0)",
		"nesting":   "x = []\n    for i in range(10**9):\n        x = [x]",
		"output":    "for i in range(10**9):\n        print('x' * 1000)",
		"value":     "'x' * 10**7",
		"files":     "open('/etc/passwd').read()",
	} {
		uri := "mem://" + name
		server.Add(uri, "application/json", `{"armed":false}`)
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: name, URI: uri, OnEvent: "r = 'fine'\nif event.get('new') is True:\n    " + bomb + "\nr"}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		server.Change(uri, `{"armed":true}`)
		n := sink.Next(t)
		switch text := n.Text(); {
		case n.Watch != name:
			t.Errorf("%s: a notice of %s: %q", name, n.Watch, n.Lines)
		case name == "value": // a large value is no crime: it is not the result
			if text != "fine" {
				t.Errorf("%s: %.200q", name, text)
			}
		case name == "output": // printed until the time was up
			if !strings.Contains(text, "filter error in output") {
				t.Errorf("%s: %.200q", name, text)
			}
		default:
			if !strings.Contains(text, "filter error in "+name) {
				t.Errorf("%s: %.200q", name, text)
			}
		}
		for _, line := range n.Lines {
			if len([]rune(line)) > watch.DefaultLineRunes {
				t.Errorf("%s: a line of %d characters", name, len(line))
			}
		}
		server.Change("mem://good", fmt.Sprintf(`{"n":%q}`, name))
		if got := sink.Next(t).Text(); got != "n is "+name {
			t.Fatalf("after %s the neighbour says %q", name, got)
		}
		m.Stop(name) // within the limit of five
	}
}
