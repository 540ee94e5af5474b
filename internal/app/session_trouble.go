package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

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
		if turn != nil && (!turn.Ended.IsZero() || !s.elsewhere(ctx, id)) {
			troubles[id] = turn.Trouble()
		}
	}
	return troubles
}

// elsewhere reports whether another process runs the session, whose turn then may
// have no end yet. The daemon knows its own.
func (s *sessionAPI) elsewhere(ctx context.Context, id string) bool {
	if s.only != "" {
		return runsElsewhere(ctx, s.data, id)
	}
	_, alive := askPlace(ctx, livePath(s.data, id))
	return alive
}

// runsElsewhere reports whether a process of its own runs a session, or the daemon,
// where that is not to be found out otherwise: it may be this process.
func runsElsewhere(ctx context.Context, data, id string) bool {
	if _, alive := askPlace(ctx, livePath(data, id)); alive {
		return true
	}
	address, alive := askPlace(ctx, filepath.Join(data, daemonFile))
	return alive && daemonRuns(ctx, address, data, id)
}

// daemonRuns asks a daemon whether it runs a session. One that does not say may.
func daemonRuns(ctx context.Context, address, data, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	token, err := os.ReadFile(filepath.Join(data, TokenName))
	if err != nil {
		return true
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/v1/sessions/"+url.PathEscape(id), http.NoBody)
	if err != nil {
		return true
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := apiClient.Do(req)
	if err != nil {
		return true
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		return false
	}
	var info struct {
		Running bool `json:"running"`
	}
	if resp.StatusCode != http.StatusOK || jsonv2.UnmarshalRead(io.LimitReader(resp.Body, maxRequest), &info) != nil {
		return true
	}
	return info.Running
}
