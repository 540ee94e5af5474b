package app

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// maxRequest bounds a request to the API, in bytes.
const maxRequest = agent.MaxInput + 1<<20

// sessionAPI is the JSON API of sessions; docs/reference/api.md is its page.
type sessionAPI struct {
	agents *Agents
	data   string
	only   string // the one session of this process; empty: any can be started

	gone chan struct{} // closed when nobody may wait any more
	once sync.Once
}

func newSessionAPI(a *Agents, data, only string) *sessionAPI {
	return &sessionAPI{agents: a, data: data, only: only, gone: make(chan struct{})}
}

func (s *sessionAPI) end() { s.once.Do(func() { close(s.gone) }) }

func (s *sessionAPI) routes() []httpserver.Route {
	api := jsonAPI()
	return []httpserver.Route{
		api.JSON("GET /v1/sessions", mayUse, s.list),
		api.JSON("POST /v1/sessions", mayUse, s.start),
		api.JSON("GET /v1/sessions/{id}", mayUse, s.show),
		api.JSON("DELETE /v1/sessions/{id}", mayUse, s.remove),
		api.JSON("POST /v1/sessions/{id}/prompt", mayUse, s.prompt),
		api.JSON("POST /v1/sessions/{id}/cancel", mayUse, s.cancel),
		api.JSON("POST /v1/sessions/{id}/reset", mayUse, s.reset),
		api.JSON("POST /v1/sessions/{id}/stop", mayUse, s.stop),
		api.JSON("POST /v1/sessions/{id}/answer", mayUse, s.answer),
		api.JSON("GET /v1/sessions/{id}/attachments", mayUse, s.attachments),
		api.Raw("GET /v1/sessions/{id}/transcript", mayUse, s.transcript, "after", "limit", "last"),
	}
}

// jsonAPI makes routes whose errors are those of the rooms.
func jsonAPI() *httpserver.API { return &httpserver.API{MaxBody: maxRequest, Status: roomStatus} }

// statusOf is the status that an error is answered with.
func statusOf(err error) int { return jsonAPI().StatusOf(err) }

// mayUse checks that whoever asks may use the session of the path. To start one
// is to run a command of one's own choice here: that takes the right to all.
func mayUse(r *http.Request) error {
	p, known := httpserver.PrincipalOf(r.Context())
	id := r.PathValue("id")
	switch {
	case !known, slices.Contains(p.Rights.Sessions, "*"), id != "" && p.Rights.Session(id), r.Method == http.MethodGet && id == "":
		return nil
	}
	return httpserver.Errorf(http.StatusForbidden, "the token of %q gives no right to this session", p.Name)
}

// shows reports whether whoever asks may know of a session.
func shows(r *http.Request, id string) bool {
	p, known := httpserver.PrincipalOf(r.Context())
	return !known || p.Rights.Session(id)
}

// roomStatus maps the errors of the rooms, once for the surface.
func roomStatus(err error) int {
	_, invalid := errors.AsType[*notice.InvalidError](err)
	_, argument := errors.AsType[*watch.ArgumentError](err)
	_, running := errors.AsType[*RunningError](err)
	switch {
	case errors.Is(err, agent.ErrNotFound), errors.Is(err, notice.ErrNotFound), errors.Is(err, ErrNoReport):
		return http.StatusNotFound
	case invalid, argument, errors.Is(err, agent.ErrEmpty):
		return http.StatusBadRequest
	case errors.Is(err, agent.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, agent.ErrQueueFull):
		return http.StatusTooManyRequests
	case running, errors.Is(err, agent.ErrClosed), errors.Is(err, errAgentsClosed):
		return http.StatusConflict
	}
	return http.StatusUnprocessableEntity
}

// SessionInfo is a session as the API shows it.
type SessionInfo struct {
	agent.Status

	Running bool `json:"running"`
	// Engine is "passthrough" for an agent that is shown in a terminal, also while it
	// does not run there.
	Engine string `json:"engine,omitzero"`
	// Watching is how many watches it has; lists say that alone.
	Watching int              `json:"watching,omitzero"`
	Watches  []watch.Status   `json:"watches,omitempty"`
	Asked    []agent.Question `json:"asked,omitempty"`
	Inbox    *notice.Status   `json:"inbox,omitempty"`
}

func (s *sessionAPI) list(r *http.Request) (any, error) {
	all, err := s.all(r.Context(), func(id string) bool { return shows(r, id) })
	return map[string][]SessionInfo{"sessions": all}, err
}

// all are the sessions that may be seen, the oldest first, without what is around
// them.
func (s *sessionAPI) all(ctx context.Context, may func(id string) bool) ([]SessionInfo, error) {
	stored, err := s.agents.Store.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	metas := []agent.Meta{}
	for _, m := range stored {
		known[m.ID] = true
		if may(m.ID) {
			metas = append(metas, m)
		}
	}
	for _, one := range s.agents.Running() { // whose description is not written yet
		if id := one.Session.ID(); !known[id] && may(id) {
			metas = append(metas, agent.Meta{ID: id})
		}
	}
	return s.infos(ctx, metas...), nil
}

func (s *sessionAPI) info(ctx context.Context, m agent.Meta) SessionInfo { return s.infos(ctx, m)[0] }

func (s *sessionAPI) infos(ctx context.Context, metas ...agent.Meta) []SessionInfo {
	all := make([]SessionInfo, len(metas))
	var stopped []string
	for i, m := range metas {
		one := s.agents.Agent(m.ID)
		if one == nil {
			stopped = append(stopped, m.ID)
			all[i] = SessionInfo{Status: agent.Status{Meta: m, State: "stopped"}}
			continue
		}
		all[i] = SessionInfo{Status: one.Session.Status(), Running: true, Engine: engineOf(one), Watching: len(one.Client.Watches.List())}
	}
	troubles := s.leftBehind(ctx, stopped...)
	for i := range all {
		if !all[i].Running {
			all[i].Trouble = troubles[all[i].Meta.ID]
		}
	}
	return all
}

func engineOf(one *Agent) string {
	if _, ok := one.Terminal(); ok {
		return "passthrough"
	}
	return ""
}

// meta finds a session, running or not.
func (s *sessionAPI) meta(ctx context.Context, id string) (agent.Meta, error) {
	all, err := s.agents.Store.Sessions(ctx)
	if err != nil {
		return agent.Meta{}, err
	}
	for _, m := range all {
		if m.ID == id {
			return m, nil
		}
	}
	if s.agents.Agent(id) != nil {
		return agent.Meta{ID: id}, nil
	}
	return agent.Meta{}, httpserver.Errorf(http.StatusNotFound, "find session %.80q: there is none; 'ossicle session list' lists them", id)
}

func (s *sessionAPI) show(r *http.Request) (any, error) {
	m, err := s.meta(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	info := s.info(r.Context(), m)
	if one := s.agents.Agent(m.ID); one != nil {
		info.Watches, info.Asked = one.Client.Watches.List(), one.Session.Questions()
	}
	if status, err := s.agents.Inbox.Status(r.Context(), m.ID); err == nil {
		info.Inbox = &status
	}
	return info, nil
}

// running finds a session that runs in this process.
func (s *sessionAPI) running(r *http.Request) (*Agent, error) {
	id := r.PathValue("id")
	if one := s.agents.Agent(id); one != nil {
		return one, nil
	}
	if _, err := s.meta(r.Context(), id); err != nil {
		return nil, err
	}
	return nil, httpserver.Errorf(http.StatusConflict, "session %q does not run here; start it again under its name", id)
}

// PromptRequest is what somebody says to a session.
type PromptRequest struct {
	Text string `json:"text"`
	From string `json:"from,omitzero"`
	Wait bool   `json:"wait,omitzero"` // for the end of its run
}

// PromptResult is what became of it.
type PromptResult struct {
	ID         string           `json:"id"`
	Run        string           `json:"run,omitzero"`
	Text       string           `json:"text,omitzero"`
	Suppressed bool             `json:"suppressed,omitzero"`
	Stop       agent.StopReason `json:"stop,omitzero"`
}

func (s *sessionAPI) prompt(r *http.Request) (any, error) {
	var req PromptRequest
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	one, err := s.running(r)
	if err != nil {
		return nil, err
	}
	ticket, err := one.Session.Submit(agent.Input{Text: req.Text, From: req.From})
	if err != nil {
		return nil, err
	}
	if !req.Wait {
		return PromptResult{ID: ticket.ID}, nil
	}
	select {
	case <-ticket.Done():
	case <-s.gone:
		return nil, agent.ErrClosed
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	result, err := ticket.Wait(r.Context())
	switch agent.CauseOf(err) {
	case agent.CauseUnavailable, agent.CauseExited: // its own words may say why
		return nil, &httpserver.OutputError{Err: err, Output: one.Output().Lines}
	default:
		if err != nil {
			return nil, err
		}
	}
	return PromptResult{ID: ticket.ID, Run: result.Run, Text: result.Text, Suppressed: result.Suppressed, Stop: result.Stop}, nil
}

func (s *sessionAPI) cancel(r *http.Request) (any, error) {
	one, err := s.running(r)
	if err != nil {
		return nil, err
	}
	return map[string]bool{"cancelled": one.Session.Cancel()}, nil
}

func (s *sessionAPI) reset(r *http.Request) (any, error) {
	one, err := s.running(r)
	if err != nil {
		return nil, err
	}
	if err := one.Session.Reset(r.Context()); err != nil {
		return nil, err
	}
	return map[string]bool{"reset": true}, nil
}

func (s *sessionAPI) stop(r *http.Request) (any, error) {
	one, err := s.running(r)
	if err != nil {
		return nil, err
	}
	if s.only != "" {
		return nil, httpserver.Errorf(http.StatusConflict, "session %q is that of a terminal: end it there", s.only)
	}
	return map[string]bool{"stopped": true}, one.Close(context.WithoutCancel(r.Context()))
}

func (s *sessionAPI) answer(r *http.Request) (any, error) {
	var req struct {
		Question string `json:"question"`
		Option   string `json:"option"`
	}
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	one, err := s.running(r)
	if err != nil {
		return nil, err
	}
	err = one.Session.Answer(req.Question, req.Option)
	if errors.Is(err, agent.ErrNotFound) {
		return nil, httpserver.Errorf(http.StatusNotFound, "answer question %.80q: it is not open, or has no option %.80q; 'ossicle session show' lists them", req.Question, req.Option)
	}
	if err != nil {
		return nil, err
	}
	return map[string]bool{"answered": true}, nil
}

// remove ends a session and forgets it: transcript, inbox, watches, and report.
func (s *sessionAPI) remove(r *http.Request) (any, error) {
	id := r.PathValue("id")
	if _, err := s.meta(r.Context(), id); err != nil {
		return nil, err
	}
	if s.only != "" {
		return nil, httpserver.Errorf(http.StatusConflict, "session %q is that of a terminal: end it there first", s.only)
	}
	ctx := context.WithoutCancel(r.Context())
	var errs []error
	if one := s.agents.Agent(id); one != nil {
		errs = append(errs, one.Close(ctx))
	}
	lock := sessionLockPath(s.data, id)
	release, err := holdSession(ctx, lock, id) // another process would go on with what is forgotten
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	defer release()
	if err := s.agents.Store.Remove(ctx, id); !errors.Is(err, agent.ErrNotFound) {
		errs = append(errs, err)
	}
	errs = append(errs, s.agents.reports.remove(ctx, id))
	err = s.agents.Inbox.Unregister(ctx, id)
	if _, unknown := errors.AsType[*notice.UnknownAgentError](err); !unknown {
		errs = append(errs, err)
	}
	if err := os.Remove(s.watchState(id)); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if err := os.Remove(lock); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	s.agents.lives.Ring(id)
	return map[string]bool{"removed": true}, errors.Join(errs...)
}

// transcript writes entries, one a line, from ?after= on, at most ?limit=, or
// without a limit all of them.
func (s *sessionAPI) transcript(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := s.meta(r.Context(), id); err != nil {
		return err
	}
	q, err := transcriptQuery(r)
	if err != nil {
		return err
	}
	lines := func() {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store")
	}
	if q == nil {
		lines()
		_ = agent.Export(r.Context(), s.agents.Store, id, w) // the client went away
		return nil
	}
	entries, err := s.agents.Store.List(r.Context(), id, *q)
	if err != nil {
		return err
	}
	lines()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range entries {
		if err := enc.Encode(entries[i]); err != nil {
			return nil //nolint:nilerr // the client went away
		}
	}
	return nil
}

func transcriptQuery(r *http.Request) (*agent.Query, error) {
	values := r.URL.Query()
	if !values.Has("after") && !values.Has("limit") && !values.Has("last") {
		return nil, nil //nolint:nilnil // no query means everything
	}
	q := &agent.Query{}
	var err error
	if q.Last, err = httpserver.QueryBool(r, "last"); err != nil {
		return nil, err
	}
	if v := values.Get("after"); v != "" {
		if q.After, err = strconv.ParseInt(v, 10, 64); err != nil || q.After < 0 {
			return nil, httpserver.Errorf(http.StatusBadRequest, "after=%.80q: use the seq of an entry", v)
		}
	}
	if v := values.Get("limit"); v != "" {
		if q.Limit, err = strconv.Atoi(v); err != nil || q.Limit < 1 || q.Limit > agent.MaxPage {
			return nil, httpserver.Errorf(http.StatusBadRequest, "limit=%.80q: use 1 to %d", v, agent.MaxPage)
		}
	}
	return q, nil
}
