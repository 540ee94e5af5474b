package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// Defaults of what is kept of a topic.
const (
	DefaultRetentionCount = 100_000
	DefaultRetentionBytes = 256 << 20
	DefaultRetentionAge   = 30 * 24 * time.Hour
)

// Feed configures the event feed.
type Feed struct {
	// Store is sqlite:PATH or a postgres:// URL. Empty is a file in the data
	// directory.
	Store string `yaml:"store"`
	// Direct is the DSN of the PostgreSQL server itself where Store leads to a
	// pooler in transaction mode.
	Direct string `yaml:"direct"`
	// Bus is memory, postgres, or a redis:// or nats:// URL. Empty is what goes
	// with the store.
	Bus string `yaml:"bus"`
	// Ring and Lag are those of feed.Options. Zero is their default.
	Ring int `yaml:"ring"`
	Lag  int `yaml:"lag"`
	// Retention is for topics of which no rule says more.
	Retention Retention `yaml:"retention"`
	// Topics are rules; the first that matches a topic counts.
	Topics []TopicRule `yaml:"topics"`
	// Files are directories and files that are shared as resources.
	Files []string `yaml:"files"`
	// Hooks are webhooks that are taken, by name.
	Hooks map[string]Hook `yaml:"hooks"`
}

// Forms in which a sender signs a webhook.
const (
	HookStandard = "standard" // Standard Webhooks
	HookGitHub   = "github"   // X-Hub-Signature-256
)

// Hook is a webhook that others send (specification D-16): whose signature it
// must have, and where it goes, a topic or the inbox of an agent.
type Hook struct {
	SecretEnv string `yaml:"secret_env"` // variable that holds the secret
	Form      string `yaml:"form"`       // HookStandard if empty
	Topic     string `yaml:"topic"`
	Agent     string `yaml:"agent"`
}

func (h *Hook) check() error {
	switch {
	case h.SecretEnv == "":
		return errors.New("secret_env is empty: it names the variable with the secret that signs")
	case h.Form != "" && h.Form != HookStandard && h.Form != HookGitHub:
		return fmt.Errorf("form %q: use %s or %s", h.Form, HookStandard, HookGitHub)
	case (h.Topic == "") == (h.Agent == ""):
		return errors.New("give a topic or an agent, and not both")
	case h.Topic != "":
		return feed.CheckTopic(h.Topic)
	}
	return nil
}

// Retention bounds what is kept of a topic. Zero is the default, a negative
// value is no bound.
type Retention struct {
	Count int64         `yaml:"count"`
	Bytes int64         `yaml:"bytes"`
	Age   time.Duration `yaml:"age"`
}

// TopicRule says how topics are treated.
type TopicRule struct {
	Topic string `yaml:"topic"` // a name, or a prefix that ends with *
	// Auditable: a slow subscriber is cut and resumes, nothing is dropped.
	Auditable bool      `yaml:"auditable"`
	Policy    string    `yaml:"policy"` // drop-oldest, drop-newest, disconnect; empty: by Auditable
	Retention Retention `yaml:"retention"`

	filter feed.Filter
	policy feed.Policy
}

// check reads the rules and says what is wrong.
func (f *Feed) check() error {
	var errs []error
	for name, n := range map[string]int{"feed.ring": f.Ring, "feed.lag": f.Lag} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: use a positive number, or leave it out", name, n))
		}
	}
	for i := range f.Topics {
		if err := f.Topics[i].read(); err != nil {
			errs = append(errs, fmt.Errorf("feed.topics[%d] %q: %w", i, f.Topics[i].Topic, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hooks)) {
		h := f.Hooks[name]
		if err := errors.Join(feed.CheckTopic(name), h.check()); err != nil {
			errs = append(errs, fmt.Errorf("feed.hooks.%s: %w", name, err))
		}
	}
	return errors.Join(append(errs, CheckStore(f.Store), CheckBus(f.Bus))...)
}

func (r *TopicRule) read() (err error) {
	if r.Topic == "" {
		return errors.New("topic is empty")
	}
	if r.filter, err = feed.ParseFilter(r.Topic); err != nil {
		return err
	}
	if r.policy = feed.DropOldest; r.Auditable {
		r.policy = feed.Disconnect
	}
	if r.Policy == "" {
		return nil
	}
	if r.policy, err = feed.ParsePolicy(r.Policy); err == nil && r.Auditable && r.policy != feed.Disconnect {
		err = fmt.Errorf("policy %s drops events, which an auditable topic must not", r.Policy)
	}
	return err
}

// CheckStore says whether a store is named in a form that is known. The error
// names no more of it than its scheme: it may hold a password.
func CheckStore(store string) error {
	switch scheme, rest, _ := strings.Cut(store, ":"); {
	case store == "", scheme == "sqlite" && rest != "", strings.HasPrefix(store, "postgres://"), strings.HasPrefix(store, "postgresql://"):
		return nil
	}
	return errors.New("store: its form is none that is known; use sqlite:PATH or a postgres:// URL")
}

// CheckBus says whether a bus is named in a form that is known, as CheckStore.
func CheckBus(bus string) error {
	switch bus {
	case "", "memory", "postgres":
		return nil
	}
	switch scheme, _, url := strings.Cut(bus, "://"); {
	case url && (scheme == "redis" || scheme == "rediss" || scheme == "nats" || scheme == "tls"):
		return nil
	}
	return errors.New("bus: its form is none that is known; use memory, postgres (the store's own), or a redis:// or nats:// URL")
}

// Policy is the policy of a topic.
func (f *Feed) Policy(topic string) feed.Policy {
	if r := f.rule(topic); r != nil {
		return r.policy
	}
	return feed.DropOldest
}

// Keep is the retention of a topic.
func (f *Feed) Keep(topic string) feed.Retention {
	kept := Retention{DefaultRetentionCount, DefaultRetentionBytes, DefaultRetentionAge}.under(f.Retention)
	if r := f.rule(topic); r != nil {
		kept = kept.under(r.Retention)
	}
	return feed.Retention{Count: max(kept.Count, 0), Bytes: max(kept.Bytes, 0), Age: max(kept.Age, 0)}
}

// under puts what over says on top of r.
func (r Retention) under(over Retention) Retention {
	if over.Count != 0 {
		r.Count = over.Count
	}
	if over.Bytes != 0 {
		r.Bytes = over.Bytes
	}
	if over.Age != 0 {
		r.Age = over.Age
	}
	return r
}

// Named are the topics that the configuration names, and not by a beginning alone.
func (f *Feed) Named() (topics []string) {
	for i := range f.Topics {
		if !strings.HasSuffix(f.Topics[i].Topic, "*") {
			topics = append(topics, f.Topics[i].Topic)
		}
	}
	for _, h := range f.Hooks {
		if h.Topic != "" {
			topics = append(topics, h.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

func (f *Feed) rule(topic string) *TopicRule {
	for i := range f.Topics {
		if f.Topics[i].filter.Match(topic) {
			return &f.Topics[i]
		}
	}
	return nil
}
