package config

import (
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// S-19: limits are configurable for all, for a session, and for an agent.
func TestSignals(t *testing.T) {
	t.Parallel()
	c := Default()
	err := c.parse([]byte(`signals:
  signals: 20
  tokens: 350
  retention: {count: 5, bytes: -1, age: 48h}
  sessions: {20260821_011758_54e1cab9: {escalations: 5}}
  agents: {lead.critic: {signals: 1}}
`))
	if err != nil || c.Validate() != nil {
		t.Fatal(err, c.Validate())
	}
	if c.Signals.Limits != (mailbox.Limits{Signals: 20, Tokens: 350}) || c.Signals.Sessions["20260821_011758_54e1cab9"].Escalations != 5 || c.Signals.Agents["lead.critic"].Signals != 1 {
		t.Errorf("%+v", c.Signals)
	}
	if c.Signals.Retention != (mailbox.Retention{Count: 5, Bytes: -1, Age: 48 * time.Hour}) {
		t.Errorf("%+v", c.Signals.Retention)
	}
	for _, bad := range []string{"signals: {tokens: 401}", "signals: {signals: -1}", "signals: {unused: 1m}", "signals: {agents: {../x: {}}}", "signals: {sessions: {x: {}}}"} {
		c := Default()
		if err := c.parse([]byte(bad)); err != nil {
			t.Errorf("%s: %v", bad, err)
		}
		if err := c.Validate(); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := Default().parse([]byte("signals: {speed: 1}")); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("%v", err)
	}
}
