package app

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// Times of the API of the page.
const (
	listTime = 20 * time.Second // servers that list what they have
	tryTime  = 30 * time.Second // a filter on samples
)

// apiRoutes are what the page asks for beside the session API;
// docs/reference/api.md is their page too.
func (p *page) apiRoutes() []httpserver.Route {
	api := jsonAPI()
	return []httpserver.Route{
		api.JSON("GET /v1/page", nil, p.describe),
		api.JSON("GET /v1/sessions/{id}/resources", mayUse, p.resources),
		api.JSON("GET /v1/sessions/{id}/watches", mayUse, p.watches),
		api.JSON("POST /v1/sessions/{id}/watches", mayUse, p.startWatch),
		api.JSON("POST /v1/sessions/{id}/watches/dry-run", mayUse, p.tryWatch),
		api.JSON("DELETE /v1/sessions/{id}/watches/{name}", mayUse, p.stopWatch),
		api.JSON("GET /v1/inbox", nil, p.listInbox, "agent", "state", "source", "after", "limit"),
		api.JSON("GET /v1/inbox/agents", nil, p.listInboxes),
		api.JSON("GET /v1/inbox/{id}", nil, p.showNotice),
		api.JSON("POST /v1/inbox/{id}/ack", nil, p.ackNotice),
		api.JSON("GET /v1/collaborations", mayUseAll, p.listCollaborations),
		api.JSON("GET /v1/collaborations/{id}", mayUseAll, p.showCollaboration),
	}
}

// pageInfo is what the page has to know before anything else.
type pageInfo struct {
	Version   string        `json:"version"`
	Principal pageOwner     `json:"principal"`
	Features  pageFeatures  `json:"features"`
	Profiles  []pageProfile `json:"profiles"`
	// Sandboxes are the kinds that can be started here.
	Sandboxes []pageSandbox `json:"sandbox_profiles"`
}

type pageOwner struct {
	Name string `json:"name"`
	All  bool   `json:"all"` // it may see and do everything
}

type pageFeatures struct {
	Feed      bool `json:"feed"`
	Signals   bool `json:"signals"`
	Sandboxes bool `json:"sandboxes"`
}

// pageProfile is a profile without what it keeps for itself: arguments, environment
// and keys.
type pageProfile struct {
	Name    string   `json:"name"`
	Engine  string   `json:"engine"` // acp, chat or passthrough
	Agent   string   `json:"agent"`  // base name of the command, or the model
	Dir     string   `json:"dir,omitempty"`
	Servers []string `json:"servers"`
	Sandbox string   `json:"sandbox,omitempty"`
}

// pageSandbox is a kind of sandbox.
type pageSandbox struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Tier   string `json:"tier,omitempty"` // the only one that will do; empty is the best that there is
}

// sandboxProfiles are the kinds of sandboxes of the fleet, by name.
func (p *page) sandboxProfiles() []pageSandbox {
	all := []pageSandbox{}
	if p.boxes == nil {
		return all
	}
	for _, s := range p.boxes.Profiles() {
		all = append(all, pageSandbox{s.Name, s.Driver, s.Tier})
	}
	return all
}

func (p *page) describe(r *http.Request) (any, error) {
	info := pageInfo{Version: version.Number(), Principal: pageOwner{"", true}, Profiles: []pageProfile{}, Sandboxes: []pageSandbox{}}
	if who, known := httpserver.PrincipalOf(r.Context()); known {
		info.Principal = pageOwner{who.Name, who.Rights.Session("*")}
	}
	info.Features = pageFeatures{Feed: p.agents.feed != nil, Signals: info.Principal.All, Sandboxes: info.Principal.All && p.boxes != nil}
	if !info.Principal.All { // profiles are for whoever may start a session
		return info, nil
	}
	info.Sandboxes = p.sandboxProfiles()
	for name, c := range p.agents.config.Profiles {
		one := pageProfile{Name: name, Engine: "chat", Agent: c.Model.Name, Dir: c.Dir, Servers: []string{}, Sandbox: c.Sandbox}
		if len(c.Command) > 0 {
			one.Engine, one.Agent = "acp", filepath.Base(c.Command[0])
		}
		if c.Passthrough {
			one.Engine = "passthrough"
		}
		servers, err := mcpclient.ParseServers(c.Servers, func(string) (string, bool) { return "", true }) // of which only the names are told
		if err == nil {                                                                                    // else starting it says what is wrong
			for i := range servers {
				one.Servers = append(one.Servers, servers[i].Name)
			}
		}
		info.Profiles = append(info.Profiles, one)
	}
	slices.SortFunc(info.Profiles, func(a, b pageProfile) int { return strings.Compare(a.Name, b.Name) })
	return info, nil
}

// pageServer is what one server of a session has.
type pageServer struct {
	Name      string         `json:"name"`
	State     string         `json:"state"` // ready or failed
	Error     string         `json:"error,omitempty"`
	Resources []pageResource `json:"resources"`
	Templates []pageTemplate `json:"templates"`
}

type pageResource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type pageTemplate struct {
	URITemplate string `json:"uri_template"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// resources lists what the servers of a session have, each asked on its own: one
// that does not answer hides only its own.
func (p *page) resources(r *http.Request) (any, error) {
	one, err := p.api.running(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	servers := one.Client.Servers.Servers()
	all := make([]pageServer, len(servers))
	done := make(chan struct{})
	for i, s := range servers {
		go func() {
			defer func() { done <- struct{}{} }()
			entries, err := s.Entries(ctx)
			all[i] = describeServer(s.Name(), entries, err)
		}()
	}
	for range servers {
		<-done
	}
	return map[string]any{"servers": all}, nil
}

func describeServer(name string, entries []watch.Entry, err error) pageServer {
	s := pageServer{Name: name, State: "ready", Resources: []pageResource{}, Templates: []pageTemplate{}}
	if err != nil {
		s.State, s.Error = "failed", err.Error()
	}
	for _, e := range entries {
		if e.Template {
			s.Templates = append(s.Templates, pageTemplate{e.URI, e.Name, e.Description})
		} else {
			s.Resources = append(s.Resources, pageResource{e.URI, e.Name, e.Description})
		}
	}
	return s
}

func (p *page) watches(r *http.Request) (any, error) {
	m, err := p.api.meta(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	var list []watch.Status
	if one := p.agents.Agent(m.ID); one != nil {
		list = one.Client.Watches.List()
	}
	return map[string]any{"watches": nonNil(list)}, nil
}

func (p *page) startWatch(r *http.Request) (any, error) {
	var req StartedWatch
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	one, err := p.api.running(r)
	if err != nil {
		return nil, err
	}
	started, err := one.Client.Watches.Start(r.Context(), watch.StartRequest(req))
	if err != nil {
		return nil, err
	}
	for _, s := range one.Client.Watches.List() {
		if s.Name == started.Name {
			return s, nil
		}
	}
	return watch.Status{Name: started.Name, URI: started.URI, Shape: started.Shape}, nil // it was stopped at once
}

func (p *page) stopWatch(r *http.Request) (any, error) {
	one, err := p.api.running(r)
	if err != nil {
		return nil, err
	}
	if !one.Client.Watches.Stop(r.PathValue("name")) {
		return nil, httpserver.Errorf(http.StatusNotFound, "stop watch %.80q: there is none of that name", r.PathValue("name"))
	}
	return map[string]bool{"stopped": true}, nil
}

// tryWatch runs a filter on samples, and on the resource as it is now.
func (p *page) tryWatch(r *http.Request) (any, error) {
	var req struct {
		URI     string `json:"uri"`
		OnEvent string `json:"on_event"`
	}
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	one, err := p.api.running(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), tryTime)
	defer cancel()
	return one.Client.Watches.Try(ctx, req.URI, req.OnEvent)
}

func (p *page) listInbox(r *http.Request) (any, error) {
	q := notice.Query{Newest: true, Limit: notice.DefaultPage}
	v := r.URL.Query()
	q.Agent, q.Source, q.After = v.Get("agent"), notice.Source(v.Get("source")), v.Get("after")
	if !slices.Contains([]notice.Source{"", notice.SourceWatch, notice.SourceSignal, notice.SourceFeed, notice.SourceWorker, notice.SourceSystem}, q.Source) {
		return nil, httpserver.Errorf(http.StatusBadRequest, "source=%.80q: use watch, signal, feed, worker or system", q.Source)
	}
	if s := v.Get("state"); s != "" {
		for name := range strings.SplitSeq(s, ",") {
			if notice.State(name).Rank() < 0 {
				return nil, httpserver.Errorf(http.StatusBadRequest, "state=%.80q: there is no such state", name)
			}
			q.States = append(q.States, notice.State(name))
		}
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > notice.MaxPage {
			return nil, httpserver.Errorf(http.StatusBadRequest, "limit=%.80q: use 1 to %d", s, notice.MaxPage)
		}
		q.Limit = n
	}
	if q.Agent != "" && !shows(r, q.Agent) {
		return nil, httpserver.Errorf(http.StatusForbidden, "the token gives no right to this inbox")
	}
	return p.notices(r.Context(), q, func(agent string) bool { return shows(r, agent) })
}

func (p *page) listInboxes(r *http.Request) (any, error) {
	all, err := p.inboxes(r.Context(), func(agent string) bool { return shows(r, agent) })
	return map[string]any{"agents": all}, err
}

// notice finds one that may be seen; of others nothing is told.
func (p *page) notice(r *http.Request) (notice.Record, error) {
	n, err := p.agents.Inbox.Get(r.Context(), "", r.PathValue("id"))
	if err == nil && !shows(r, n.Agent) {
		err = notice.ErrNotFound
	}
	return n, err
}

func (p *page) showNotice(r *http.Request) (any, error) { return p.notice(r) }

func (p *page) ackNotice(r *http.Request) (any, error) {
	n, err := p.notice(r)
	if err != nil {
		return nil, err
	}
	by := "page"
	if who, known := httpserver.PrincipalOf(r.Context()); known {
		by = "page " + who.Name
	}
	acked, err := p.agents.Inbox.Ack(r.Context(), n.Agent, by, n.ID)
	return map[string]bool{"acked": len(acked) > 0}, err
}
