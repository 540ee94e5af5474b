package app

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/ossicle/ossicle/agent"
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

// leftBehind is what is wrong with a session that does not run in this process: how
// its last turn ended, or that nobody ended it. What cannot be read is not told.
func (s *sessionAPI) leftBehind(ctx context.Context, id string) *agent.Trouble {
	var last *agent.LastTurn
	for _, n := range tails {
		tail, err := s.agents.Store.List(ctx, id, agent.Query{Limit: n, Last: true})
		if err != nil {
			s.agents.log.LogAttrs(ctx, slog.LevelWarn, "the last turn of a session cannot be read", logattr.Session(id), logattr.Err(err))
			return nil
		}
		last = agent.FindLastTurn(tail)
		if len(tail) < n || last != nil && (!last.Ended.IsZero() && last.Cause != agent.CauseCutOff || !last.Began.IsZero()) {
			break
		}
	}
	if last == nil || last.Ended.IsZero() && s.elsewhere(ctx, id) {
		return nil
	}
	return last.Trouble()
}

// elsewhere reports whether another process may run the session, whose turn then may
// have no end yet: one of its own, or the daemon, where this is none.
func (s *sessionAPI) elsewhere(ctx context.Context, id string) bool {
	if s.only != "" {
		if _, alive := askPlace(ctx, filepath.Join(s.data, daemonFile)); alive {
			return true
		}
	}
	_, alive := askPlace(ctx, livePath(s.data, id))
	return alive
}
