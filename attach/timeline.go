package attach

import (
	"cmp"
	"slices"
	"strings"
)

// class groups the kinds on which a status rests; of each class, and of each
// kind of the session, the best piece outlives everything else.
type class int

const (
	classSession class = iota
	classListed
	classAlive // success or failure, whichever is later
	classPlaced
	classOther
)

func classOf(e Evidence) class {
	if e.Server == "" {
		if ofSession[e.Kind] {
			return classSession
		}
		return classOther
	}
	switch e.Kind {
	case ToolsListObserved:
		return classListed
	case InitializeObserved, DiscoverObserved, ToolCallObserved, ServerError, AgentConnected, AgentFailed:
		return classAlive
	case ServerDelivered, SessionAccepted, ServerFiltered, ServerResolved:
		return classPlaced
	default:
		return classOther
	}
}

// better orders the pieces of one class of one server: what was delivered counts
// over what was left out, a probe proves nothing, and of a success and a failure at
// one time the success counts.
func better(a, b Evidence) int {
	return cmp.Or(cmp.Compare(weight(a), weight(b)), a.OccurredAt.Compare(b.OccurredAt), cmp.Compare(success(a), success(b)), compare(a, b))
}

func weight(e Evidence) int {
	switch {
	case e.Kind == ServerDelivered, e.Kind == SessionAccepted:
		return 2
	case e.Kind == ServerFiltered:
		return 1
	case e.Kind == DiscoverObserved && e.Era != EraModern:
		return -1
	}
	return 0
}

func success(e Evidence) int {
	if e.Kind == ServerError || e.Kind == AgentFailed {
		return 0
	}
	return 1
}

type pinKey struct {
	server string
	class  class
	kind   Kind // of the session
}

// pinned is up to which position a piece is kept in any case: of each server the
// two on which its status may rest. MaxServers servers and four pieces of the
// session fill MaxEvidence.
const pinned = 2

// retain bounds the timeline. It keeps the best piece of each class of each
// server, then the newest others. What it drops it would drop again, so that
// bounding as evidence comes gives the same as bounding once at the end. Where
// rows are dropped, that holds for the pinned pieces only, and no others are kept.
func (a *Attempt) retain(all []Evidence) []Evidence {
	all = slices.DeleteFunc(all, func(e Evidence) bool {
		_, found := a.index(e.Server)
		return e.Server != "" && !found
	})
	if len(all) <= MaxEvidence && !a.ServersTruncated {
		return all
	}
	best := map[pinKey]int{}
	for i, e := range all {
		c := classOf(e)
		if c == classOther {
			continue
		}
		k := pinKey{server: e.Server, class: c}
		if c == classSession {
			k.kind = e.Kind
		}
		if j, ok := best[k]; !ok || better(all[j], e) < 0 {
			best[k] = i
		}
	}
	ranks := make([]rank, len(all))
	for i := range all {
		ranks[i] = rank{index: i, position: pinned + len(all)}
	}
	for k, i := range best {
		ranks[i].position, ranks[i].server = position(k, best), k.server
	}
	slices.SortFunc(ranks, compareRanks)
	var kept []Evidence
	for _, r := range ranks[:min(len(ranks), MaxEvidence)] {
		if r.position <= pinned || !a.ServersTruncated {
			kept = append(kept, all[r.index])
		}
	}
	slices.SortFunc(kept, compare)
	return kept
}

// rank is the claim of a piece to stay.
type rank struct {
	position int // among those of its server that a status may rest on; large: none
	server   string
	index    int // by time
}

// compareRanks puts the strongest of each server before the second of any, and
// the newest first among the others. The order of servers is fixed: were it by
// time, it would depend on what came first.
func compareRanks(a, b rank) int {
	return cmp.Or(cmp.Compare(a.position, b.position), strings.Compare(a.server, b.server), cmp.Compare(b.index, a.index))
}

func position(k pinKey, best map[pinKey]int) int {
	if k.class == classSession {
		return 0
	}
	p := 1
	for c := classListed; c < k.class; c++ {
		if _, ok := best[pinKey{server: k.server, class: c}]; ok {
			p++
		}
	}
	return p
}
