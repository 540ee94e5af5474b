package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// a probe says what the server offers, and whether it really announces.
func TestProbe(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		go func() {
			for !s.touchQuietly(t) { // the change must come after the listen, which only the probe knows of
			}
		}()
		r := s.Probe(ctxOf(t), ProbeOptions{URI: "a:/1", Wait: 30 * time.Second})
		ok := ProbeStep{OK: true}
		want := ProbeReport{
			Server: "srv", Transport: s.spec.Transport, Target: s.spec.Target(), Connect: ok,
			ProtocolVersion: "2026-07-28", Versions: []string{"2026-07-28"}, Era: "modern",
			ServerName: "fake", ServerVersion: "1", Capabilities: json.RawMessage(`{"resources":{"subscribe":true},"tools":{}}`),
			Tools:     &ProbeList{ProbeStep: ok, Names: []string{"touch", "other", "third"}},
			Resources: &ProbeList{ProbeStep: ok, Names: []string{"a:/1", "s:/1"}},
			Templates: &ProbeList{ProbeStep: ok, Names: []string{"a:/{x}"}},
			Listen:    &ProbeListen{ProbeStep: ok, URI: "a:/1", Announced: true},
		}
		if diff := cmp.Diff(want, r, cmpopts.IgnoreFields(ProbeStep{}, "MS"), cmpopts.IgnoreFields(ProbeListen{}, "AnnouncedMS")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if r.Connect.MS <= 0 || r.Listen.AnnouncedMS <= 0 {
			t.Errorf("times %v, %v", r.Connect.MS, r.Listen.AnnouncedMS)
		}
	})
}

// touchQuietly announces a:/1, and reports that it cannot, as when the test has ended.
func (s *Server) touchQuietly(t *testing.T) bool {
	_, err := s.CallTool(t.Context(), "touch", json.RawMessage(`{"uri":"a:/1"}`))
	time.Sleep(20 * time.Millisecond)
	return err != nil
}

func TestProbeTroubled(t *testing.T) {
	t.Parallel()
	r := stdioServer(t, "dies-at-once").Probe(ctxOf(t), ProbeOptions{})
	if r.Connect.OK || !strings.Contains(r.Connect.Error, "cannot open the database") || r.Tools != nil {
		t.Errorf("dead server: %+v", r)
	}
	r = stdioServer(t, "legacy noise no-templates endless").Probe(ctxOf(t), ProbeOptions{URI: "a:/1"})
	switch {
	case r.Era != "legacy" || r.ProtocolVersion != "2025-11-25" || string(r.Capabilities) != `{"resources":{"subscribe":true},"tools":{}}`:
		t.Errorf("legacy server: %+v", r)
	case r.Listen.OK || !strings.Contains(r.Listen.Error, "2026-07-28"):
		t.Errorf("listen on a legacy server: %+v", r.Listen)
	case !r.Templates.OK || len(r.Templates.Names) != 0 || len(r.Resources.Names) != 2:
		t.Errorf("lists: %+v, %+v", r.Templates, r.Resources)
	case r.Tools.OK || !strings.Contains(r.Tools.Error, "no end"):
		t.Errorf("tools without end: %+v", r.Tools)
	case r.NoiseLines == 0 || len(r.Noise) == 0:
		t.Errorf("noise: %d %q", r.NoiseLines, r.Noise)
	}
	r = stdioServer(t, "").Probe(ctxOf(t), ProbeOptions{URI: "x:/refused"})
	if r.Listen.OK || !strings.Contains(r.Listen.Error, "refused") {
		t.Errorf("refused URI: %+v", r.Listen)
	}
	r = stdioServer(t, "").Probe(ctxOf(t), ProbeOptions{URI: "a:/1", Wait: time.Millisecond})
	if !r.Listen.OK || r.Listen.Announced {
		t.Errorf("nothing happened: %+v", r.Listen)
	}
}
