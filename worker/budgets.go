package worker

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Budgets are the deadlines of the channel. They travel in initialize, in
// seconds, so that two sources of a ceiling can be compared; the worker obeys
// the smaller. On the wire a fraction of a second is a decimal.
type Budgets struct {
	Handshake         time.Duration // socket open to initialize (worker); twice that to initialized (host)
	Ready             time.Duration // initialized to running
	ReadyAck          time.Duration // ready to tools/list
	HeartbeatInterval time.Duration // between heartbeats
	HeartbeatGrace    time.Duration // silence that a worker bears; the host bears one interval more
	Idle              time.Duration // no tool call completed
	MaxExec           time.Duration // since process start
	ReleaseGrace      time.Duration // release to its report
	ReconnectWindow   time.Duration // channel lost to channel back
}

// DefaultBudgets are those of the profile Light.
func DefaultBudgets() Budgets {
	return Budgets{
		Handshake: 10 * time.Second, Ready: 30 * time.Second, ReadyAck: 15 * time.Second,
		HeartbeatInterval: 10 * time.Second, HeartbeatGrace: 30 * time.Second,
		Idle: 90 * time.Second, MaxExec: 900 * time.Second,
		ReleaseGrace: 30 * time.Second, ReconnectWindow: 60 * time.Second,
	}
}

// budgetField is a budget with its name on the wire.
type budgetField struct {
	name string
	at   *time.Duration
}

// fields lists the budgets in the order of the contract. dialSeconds is not
// among them: it governs a wait that is over before there is a channel.
func (b *Budgets) fields() []budgetField {
	return []budgetField{
		{"handshakeSeconds", &b.Handshake},
		{"readySeconds", &b.Ready},
		{"readyAckSeconds", &b.ReadyAck},
		{"heartbeatIntervalSeconds", &b.HeartbeatInterval},
		{"heartbeatGraceSeconds", &b.HeartbeatGrace},
		{"idleSeconds", &b.Idle},
		{"maxExecSeconds", &b.MaxExec},
		{"releaseGraceSeconds", &b.ReleaseGrace},
		{"reconnectWindowSeconds", &b.ReconnectWindow},
	}
}

// Min returns the smaller of each budget, and the names of those that differ. A
// budget that is zero in one of the two is the other's.
func (b Budgets) Min(other Budgets) (Budgets, []string) {
	var differ []string
	theirs := other.fields()
	for i, f := range b.fields() {
		o := *theirs[i].at
		if o == 0 || o == *f.at {
			continue
		}
		if *f.at != 0 {
			differ = append(differ, f.name)
		}
		if *f.at == 0 || o < *f.at {
			*f.at = o
		}
	}
	return b, differ
}

// orDefaults fills what is zero.
func (b Budgets) orDefaults() Budgets {
	d := DefaultBudgets()
	defaults := d.fields()
	for i, f := range b.fields() {
		if *f.at == 0 {
			*f.at = *defaults[i].at
		}
	}
	return b
}

// MarshalJSON writes the nine keys in the order of the contract.
func (b Budgets) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, f := range b.fields() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, f.name...)
		out = append(out, '"', ':')
		out = appendSeconds(out, *f.at)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads the keys that it knows and ignores others. A known key
// that is not a positive number is an error.
func (b *Budgets) UnmarshalJSON(data []byte) error {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf("read budgets: %w", err)
	}
	for _, f := range b.fields() {
		raw, ok := members[f.name]
		if !ok {
			continue
		}
		d, err := parseSeconds(raw)
		if err == nil && d <= 0 {
			err = errors.New("not positive")
		}
		if err != nil {
			return fmt.Errorf("read budget %s: %w", f.name, err)
		}
		*f.at = d
	}
	return nil
}

// appendSeconds writes a duration as seconds, exact to the millisecond.
func appendSeconds(dst []byte, d time.Duration) []byte {
	if d%time.Second == 0 {
		return strconv.AppendInt(dst, int64(d/time.Second), 10)
	}
	return strconv.AppendFloat(dst, d.Round(time.Millisecond).Seconds(), 'f', -1, 64)
}

// maxSeconds bounds what a peer can make us wait: about 31 years fit a Duration
// with room for sums.
const maxSeconds = 1e9

// parseSeconds reads a JSON number of seconds. More than maxSeconds is
// maxSeconds: a peer may say 1e300, and it changes no ceiling of ours.
func parseSeconds(raw jsontext.Value) (time.Duration, error) {
	if raw.Kind() != '0' {
		return 0, fmt.Errorf("want a number of seconds, got %s", kindName(raw.Kind()))
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, fmt.Errorf("want a number of seconds: %w", err)
	}
	f = min(max(f, -maxSeconds), maxSeconds)
	return time.Duration(f * float64(time.Second)).Round(time.Millisecond), nil
}

// seconds is a duration that is a number of seconds on the wire.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return appendSeconds(nil, time.Duration(s)), nil
}

func (s *seconds) UnmarshalJSON(data []byte) error {
	d, err := parseSeconds(data)
	if err == nil && d < 0 {
		err = errors.New("seconds below zero")
	}
	*s = seconds(d)
	return err
}
