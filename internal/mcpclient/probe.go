package mcpclient

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	stdjson "encoding/json"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

// ProbeOptions say how deep [Server.Probe] looks. The zero value asks for
// everything that needs no URI.
type ProbeOptions struct {
	// URI is listened to; empty listens for list changes only.
	URI string
	// Wait is how long an announcement of a change of URI is awaited; zero does
	// not wait. Somebody else must make the change.
	Wait time.Duration
}

// ProbeReport is what [Server.Probe] found. Times are in milliseconds. Each step
// carries its own error; the later ones are left out when there is no
// connection. Its JSON form is that of "ossicle probe mcp --json".
type ProbeReport struct {
	Server    string    `json:"server"`
	Transport Transport `json:"transport"`
	Target    string    `json:"target"` // program or scheme and host

	Connect         ProbeStep          `json:"connect"`
	ProtocolVersion string             `json:"protocol_version,omitempty"` // negotiated
	Versions        []string           `json:"versions,omitempty"`         // that the server names, where it does
	Era             string             `json:"era,omitempty"`              // "modern" or "legacy"
	ServerName      string             `json:"server_name,omitempty"`
	ServerVersion   string             `json:"server_version,omitempty"`
	Capabilities    stdjson.RawMessage `json:"capabilities,omitempty"`

	Tools     *ProbeList   `json:"tools,omitempty"`
	Resources *ProbeList   `json:"resources,omitempty"`
	Templates *ProbeList   `json:"templates,omitempty"`
	Listen    *ProbeListen `json:"listen,omitempty"`

	// NoiseLines counts lines on a child's standard output that were no messages;
	// Noise has the last ones. Stderr is the tail of its standard error.
	NoiseLines int      `json:"noise_lines,omitempty"`
	Noise      []string `json:"noise,omitempty"`
	Stderr     string   `json:"stderr,omitempty"`
}

// ProbeStep is one thing that was tried.
type ProbeStep struct {
	OK    bool    `json:"ok"`
	MS    float64 `json:"ms"`
	Error string  `json:"error,omitempty"`
}

// ProbeList is a list that was fetched to its end.
type ProbeList struct {
	ProbeStep
	Names []string `json:"names"` // of tools; URIs of resources and templates
}

// ProbeListen tells what subscriptions/listen is worth, or what stands for it in
// the legacy era. OK says that it was acknowledged, with the URI if one was
// given.
type ProbeListen struct {
	ProbeStep
	URI         string  `json:"uri,omitempty"`
	Announced   bool    `json:"announced"`              // a change was announced within the wait
	AnnouncedMS float64 `json:"announced_ms,omitempty"` // after the acknowledgement
	End         string  `json:"end,omitempty"`          // how the listen ended, if it did while we waited
}

// step times f.
func step(f func() error) ProbeStep {
	start := time.Now()
	err := f()
	st := ProbeStep{OK: err == nil, MS: millis(time.Since(start))}
	if err != nil {
		st.Error = err.Error()
	}
	return st
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Probe finds out what a server offers and how long it takes (specification
// It changes nothing, and disturbs no subscription.
func (s *Server) Probe(ctx context.Context, o ProbeOptions) ProbeReport {
	r := ProbeReport{Server: s.spec.Name, Transport: s.spec.Transport, Target: s.spec.Target()}
	var sess *session
	r.Connect = step(func() (err error) {
		sess, err = s.session(ctx)
		return err
	})
	if sess == nil {
		return r
	}
	r.describe(sess)
	r.Tools = probeList(func() (names []string, err error) {
		tools, err := s.Tools(ctx)
		for _, t := range tools {
			names = append(names, t.Name)
		}
		return names, err
	})
	r.Resources = probeList(func() ([]string, error) { return uriList(s.resources(ctx)) })
	r.Templates = probeList(func() ([]string, error) { return uriList(s.templates(ctx)) })
	r.Listen = s.probeListen(ctx, o)
	if sess.noise != nil {
		r.NoiseLines, r.Noise = sess.noise.snapshot()
		r.Stderr = sess.proc.Stderr()
	}
	return r
}

// uriList reduces entries to their URIs. A list that the server does not have
// is empty.
func uriList(entries []watch.Entry, err error) ([]string, error) {
	if errors.Is(err, errNoFeature) {
		return nil, nil
	}
	var uris []string
	for _, e := range entries {
		uris = append(uris, e.URI)
	}
	return uris, err
}

// describe fills in what the handshake told.
func (r *ProbeReport) describe(sess *session) {
	r.ProtocolVersion, r.Era = sess.init.ProtocolVersion, string(sess.era)
	if info := sess.init.ServerInfo; info != nil {
		r.ServerName, r.ServerVersion = info.Name, info.Version
	}
	var found struct {
		Versions     []string       `json:"supportedVersions"`
		Capabilities jsontext.Value `json:"capabilities"`
	}
	if json.Unmarshal(sess.found, &found, lax) == nil {
		r.Versions, r.Capabilities = found.Versions, stdjson.RawMessage(found.Capabilities)
	}
}

func probeList(fetch func() ([]string, error)) *ProbeList {
	l := &ProbeList{Names: []string{}}
	l.ProbeStep = step(func() error {
		names, err := fetch()
		if names != nil {
			l.Names = names
		}
		return err
	})
	return l
}

// probeListen opens a listen of its own and, if asked to, waits for news.
func (s *Server) probeListen(ctx context.Context, o ProbeOptions) *ProbeListen {
	l := &ProbeListen{URI: o.URI}
	filter := listen.Filter{ResourcesListChanged: true, ToolsListChanged: true}
	if o.URI != "" {
		filter = listen.Filter{ResourceSubscriptions: []string{o.URI}}
	}
	var stream *listen.Stream
	l.ProbeStep = step(func() error {
		sess, err := s.session(ctx)
		if err != nil {
			return err
		}
		if err := s.watchable(sess); err != nil {
			return err
		}
		if stream, err = sess.open(ctx, filter); err != nil {
			return err
		}
		if o.URI != "" && len(stream.Filter().ResourceSubscriptions) == 0 {
			return &listen.RefusedError{URI: o.URI, Err: stream.Refusal(o.URI)}
		}
		return nil
	})
	if stream == nil {
		return l
	}
	defer stream.Close()
	if !l.OK || o.URI == "" || o.Wait <= 0 {
		return l
	}
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	start := time.Now()
	_, err := stream.Next(ctx)
	var end *listen.EndError
	switch {
	case err == nil:
		l.Announced, l.AnnouncedMS = true, millis(time.Since(start))
	case errors.As(err, &end):
		l.End = end.Error()
	}
	return l
}
