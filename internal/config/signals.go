package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// DefaultUnused is how long a collaboration session is kept that nobody uses.
const DefaultUnused = 90 * 24 * time.Hour

// Signals bounds what signals between agents cause (specification S-19). Zero is
// the default.
type Signals struct {
	mailbox.Limits `yaml:",inline"`

	// Retention bounds what a session keeps of its signals.
	Retention mailbox.Retention `yaml:"retention"`
	// Unused is how long a session is kept that nobody uses; a negative value is for
	// ever, zero as long as KeepUnused says.
	Unused time.Duration `yaml:"unused"`

	// Sessions and Agents have limits of their own, by their ids.
	Sessions map[string]mailbox.Limits `yaml:"sessions"`
	Agents   map[string]mailbox.Limits `yaml:"agents"`
}

// KeepUnused is how long a session is kept that nobody uses; negative is for ever. By
// itself that is no shorter than its signals are kept, so that none goes with the
// session that somebody could still come back for: whoever sets Unused decides.
func (s *Signals) KeepUnused() time.Duration {
	if s.Unused != 0 {
		return s.Unused
	}
	age := s.Retention.OrDefaults().Age
	if age < 0 {
		return age
	}
	return max(DefaultUnused, mailbox.AwayAfter+age)
}

func (s *Signals) check() error {
	errs := []error{checkLimits("signals", s.Limits)}
	if s.Unused > 0 && s.Unused < time.Hour {
		errs = append(errs, fmt.Errorf("signals.unused %s: use an hour or more", s.Unused))
	}
	for id, l := range s.Sessions {
		errs = append(errs, mailbox.CheckSession(id), checkLimits("signals.sessions."+id, l))
	}
	for id, l := range s.Agents {
		errs = append(errs, mailbox.CheckAgent(id), checkLimits("signals.agents."+id, l))
	}
	return errors.Join(errs...)
}

func checkLimits(name string, l mailbox.Limits) error {
	if l.Signals < 0 || l.Escalations < 0 || l.Tokens < 0 || l.Tokens > mailbox.MaxTokens {
		return fmt.Errorf("%s: use positive numbers, and at most %d tokens", name, mailbox.MaxTokens)
	}
	return nil
}
