package app

import (
	"context"
	"log/slog"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/process"
)

// missing is why the agent of a specification cannot be started, as far as that is
// known without a start: it would fail at each of its turns.
func missing(spec *AgentSpec) error {
	if spec.Engine != nil || len(spec.Profile.Command) == 0 {
		return nil
	}
	_, err := process.Find(spec.Profile.Command[0])
	return err
}

// tails are how many entries of a transcript are read to find its last turn: most end
// with one, and what is said behind it is little.
var tails = [...]int{8, 512}

// leftBehind is what is wrong with sessions that do not run in this process: how the
// last turn of each ended, or that nobody ended it. What cannot be read is not told.
// However many they are, the store is asked once for each of tails at most.
func (s *sessionAPI) leftBehind(ctx context.Context, ids ...string) map[string]*agent.Trouble {
	last := map[string]*agent.LastTurn{}
	for _, n := range tails {
		if len(ids) == 0 {
			break
		}
		var more []string
		err := s.agents.Store.Tails(ctx, ids, n, func(id string, tail []agent.Entry) {
			turn := agent.FindLastTurn(tail)
			last[id] = turn
			whole := len(tail) < n || turn != nil && (!turn.Ended.IsZero() && turn.Cause != agent.CauseCutOff || !turn.Began.IsZero())
			if !whole {
				more = append(more, id)
			}
		})
		if err != nil {
			s.agents.log.LogAttrs(ctx, slog.LevelWarn, "the last turns of sessions cannot be read", logattr.Count(len(ids)), logattr.Err(err))
			return nil
		}
		ids = more
	}
	troubles := map[string]*agent.Trouble{}
	for id, turn := range last {
		if turn != nil && (!turn.Ended.IsZero() || !s.elsewhere(id)) {
			troubles[id] = turn.Trouble()
		}
	}
	return troubles
}

// elsewhere reports whether another process runs the session, whose turn then may
// have no end yet: whoever runs one holds its lock, also a process that serves nobody.
// On a system without file locks nobody is ever found there; but none of those that
// have no locks has what it takes to run an agent (internal/process).
func (s *sessionAPI) elsewhere(id string) bool { return filelock.Held(sessionLockPath(s.data, id)) }
