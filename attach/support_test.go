package attach_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ossicle/ossicle/attach"
)

var epoch = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// at is n seconds after the attempts began.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

func begin(t testing.TB, r attach.Report, id string, second int) attach.Report {
	t.Helper()
	r, err := r.Begin(attach.Start{TaskID: "task", SessionID: "s", ExecutionID: "x", AttemptID: id, AgentID: "codex", StartedAt: at(second)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// saw is evidence for server "m" of attempt "a".
func saw(kind attach.Kind, second int, change ...func(*attach.Evidence)) attach.Evidence {
	e := attach.Evidence{AttemptID: "a", ExecutionID: "x", Server: "m", Kind: kind, OccurredAt: at(second)}
	for _, c := range change {
		c(&e)
	}
	return e
}

func reduce(t testing.TB, r attach.Report, all ...attach.Evidence) attach.Report {
	t.Helper()
	for _, e := range all {
		next, err := attach.Reduce(r, e)
		if err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
		r = next
	}
	return r
}

func row(t testing.TB, all ...attach.Evidence) attach.Server {
	t.Helper()
	r := reduce(t, begin(t, attach.Report{}, "a", 0), all...)
	s := r.CurrentAttempt().Server("m")
	if s == nil {
		t.Fatal("no row")
		return attach.Server{}
	}
	return *s
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// hostKinds are what hosts see of a server; agents add two of their own.
var hostKinds = []attach.Kind{
	attach.ServerResolved, attach.ServerFiltered, attach.ServerDelivered, attach.SessionAccepted, attach.DiscoverObserved, attach.InitializeObserved,
	attach.ToolsListObserved, attach.ToolCallObserved, attach.ToolCallObserved, attach.RequestError, attach.ServerError, attach.ConnectionClosed,
	attach.EndpointTested, "kind_of_tomorrow",
}

// randomEvidence is what hooks may see of up to so many servers, with many equal
// times.
func randomEvidence(rnd *rand.Rand, n, servers int, kinds []attach.Kind) []attach.Evidence {
	var all []attach.Evidence
	for range n {
		e := attach.Evidence{AttemptID: "a", ExecutionID: "x", Server: fmt.Sprintf("m%02d", rnd.IntN(servers)), OccurredAt: at(rnd.IntN(1 + n/3))}
		e.Kind = kinds[rnd.IntN(len(kinds))]
		if rnd.IntN(8) == 0 {
			e.Server, e.Kind = "", []attach.Kind{attach.SessionAccepted, attach.SessionError, attach.SessionBlocked, attach.ServerError, attach.AgentEnded}[rnd.IntN(5)]
			e.ACPSessionID = fmt.Sprint("acp", rnd.IntN(2))
		}
		e.Reason = attach.Reasons()[rnd.IntN(len(attach.Reasons()))].Reason
		e.Summary = []string{"", "one", "two"}[rnd.IntN(3)]
		e.Era = []attach.Era{attach.EraModern, attach.EraLegacy}[rnd.IntN(2)]
		e.Transport = []attach.Transport{attach.HTTP, attach.SSE, attach.Stdio, ""}[rnd.IntN(4)]
		e.Source = []attach.Source{attach.SourceBuiltin, attach.SourceProfile, ""}[rnd.IntN(3)]
		e.Capability = []attach.Capability{attach.Advertised, attach.Assumed, ""}[rnd.IntN(3)]
		if rnd.IntN(2) == 0 {
			e.ConnectionID = attach.ConnectionID(fmt.Sprint(rnd.IntN(12)))
		}
		if e.Kind == attach.ToolsListObserved {
			e.ToolCount = new(rnd.IntN(3))
		}
		all = append(all, e)
	}
	return all
}

// mixed is the same evidence in another order, some of it twice.
func mixed(rnd *rand.Rand, all []attach.Evidence) []attach.Evidence {
	out := slices.Clone(all)
	for range len(all) / 3 {
		out = append(out, all[rnd.IntN(len(all))])
	}
	rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
