package access

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// TicketPrefix is what tickets begin with.
const TicketPrefix = "ossicle_ticket_"

const (
	// DefaultTicketLife is for how long a ticket lets in.
	DefaultTicketLife = 60 * time.Second
	// MaxTicket bounds a ticket, in bytes: it travels in a URL.
	MaxTicket = 4 << 10

	minTicketSecret = 32 // bytes
	ticketPurpose   = "ossicle ticket 1"
)

// ErrTooManyTopics says that the rights of a ticket do not fit into a URL.
var ErrTooManyTopics = errors.New("the rights do not fit into a ticket; name fewer topics")

// TicketOptions adjust [Tickets]. Zero fields take the defaults.
type TicketOptions struct {
	// Life is for how long a ticket lets in.
	Life time.Duration
}

// Tickets makes and verifies tickets. A ticket stands for its principal, for
// reading topics of the feed and nothing else, in the URL of a browser's
// EventSource, which can send no token.
//
// Within its life a ticket can be used any number of times, at every replica
// that has the same secret: a browser that reconnects must be let in again.
// Whoever sees the URL within that time can read what the ticket allows, so it
// must not be logged, and the time is short. What was let in stays until its
// principal's token ends.
type Tickets struct {
	key  []byte
	life time.Duration
}

// NewTickets returns tickets signed with a key that is derived from secret, of
// at least 32 bytes. Replicas that share the secret take each other's tickets.
func NewTickets(secret []byte, o *TicketOptions) (*Tickets, error) {
	if len(secret) < minTicketSecret {
		return nil, fmt.Errorf("make tickets: the secret has %d bytes; use at least %d random ones", len(secret), minTicketSecret)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, ticketPurpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("make tickets: %w", err)
	}
	t := &Tickets{key: key, life: DefaultTicketLife}
	if o != nil && o.Life > 0 {
		t.life = o.Life
	}
	return t, nil
}

// claims are what a ticket says, signed.
type claims struct {
	Name   string   `json:"n"`
	Topics []string `json:"t"`           // patterns of URIs
	Until  int64    `json:"u"`           // Unix time in ms: the end of the ticket
	End    int64    `json:"e,omitzero"`  // Unix time in ms: the end of the principal's token
	Hash   []byte   `json:"h,omitempty"` // of the principal's token
}

// Issue returns a ticket of p for topics of the feed, and when it ends. Topics
// are names and beginnings with `*` behind them; none means whatever p may read.
// The caller has checked that p may read them. Errors: ErrTooManyTopics.
func (t *Tickets) Issue(p *Principal, topics []string) (string, time.Time, error) {
	until := time.Now().Add(t.life)
	if !p.Expires.IsZero() && p.Expires.Before(until) {
		until = p.Expires
	}
	c := claims{Name: p.Name, Topics: p.Rights.Topics, Until: until.UnixMilli()}
	if len(topics) > 0 {
		c.Topics = nil
		for _, topic := range topics {
			c.Topics = append(c.Topics, TopicURIPrefix+topic)
		}
	}
	if !p.Expires.IsZero() {
		c.End = p.Expires.UnixMilli()
	}
	if p.TokenHash != [32]byte{} {
		c.Hash = p.TokenHash[:]
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("issue ticket: %w", err)
	}
	ticket := TicketPrefix + base64.RawURLEncoding.EncodeToString(body)
	ticket += "." + base64.RawURLEncoding.EncodeToString(t.sign(ticket))
	if len(ticket) > MaxTicket {
		return "", time.Time{}, fmt.Errorf("issue ticket: %w", ErrTooManyTopics)
	}
	return ticket, Moment(until), nil
}

func (t *Tickets) sign(s string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(s))
	return mac.Sum(nil)
}

// Verify returns the principal that a ticket stands for, with the right to read
// and no other. Errors wrap ErrInvalidToken.
func (t *Tickets) Verify(ticket string) (*Principal, error) {
	signed, sum, ok := strings.Cut(ticket, ".")
	body, named := strings.CutPrefix(signed, TicketPrefix)
	if !ok || !named || len(ticket) > MaxTicket {
		return nil, fmt.Errorf("%w: it is no ticket", ErrInvalidToken)
	}
	// What is compared is the spelling, of which there is one.
	if !hmac.Equal([]byte(sum), []byte(base64.RawURLEncoding.EncodeToString(t.sign(signed)))) {
		return nil, fmt.Errorf("%w: the ticket's signature is wrong", ErrInvalidToken)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	var c claims
	if err == nil {
		err = json.Unmarshal(b, &c, json.RejectUnknownMembers(true))
	}
	if err != nil || (len(c.Hash) != 0 && len(c.Hash) != 32) {
		return nil, fmt.Errorf("%w: the ticket is of another version", ErrInvalidToken)
	}
	if !time.Now().Before(time.UnixMilli(c.Until)) {
		return nil, fmt.Errorf("%w: the ticket has expired; get a new one", ErrInvalidToken)
	}
	p := &Principal{Name: c.Name, Rights: Rights{Topics: c.Topics}}
	copy(p.TokenHash[:], c.Hash)
	if c.End != 0 {
		p.Expires = time.UnixMilli(c.End).UTC()
	}
	return p, nil
}
