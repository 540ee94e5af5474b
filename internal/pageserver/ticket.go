package pageserver

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Bounds of tickets that were not used yet.
const (
	ticketLife   = 30 * time.Second
	maxTickets   = 1024
	maxTicketsOf = 32 // of one principal, whose oldest makes room for the newest
	ticketPrefix = "ossicle_live_"
)

// tickets let in whoever has just shown a token: a browser can send none with a
// WebSocket. Each is good once and for a short time, in this process alone; so
// what is left of it in a history or a log opens nothing.
type tickets struct {
	mu  sync.Mutex
	all []ticket // oldest first
}

type ticket struct {
	hash  [32]byte
	who   *access.Principal // nil where nobody is asked for a token
	until time.Time
}

var errTooManyTickets = fmt.Errorf("%d connections are about to begin; try again in a moment", maxTickets)

// issue makes a ticket for a principal.
func (t *tickets) issue(who *access.Principal, now time.Time) (string, time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	mine, oldest := 0, -1
	for i, o := range t.all {
		if same(o.who, who) {
			if mine++; oldest < 0 {
				oldest = i
			}
		}
	}
	if mine >= maxTicketsOf {
		t.all = append(t.all[:oldest], t.all[oldest+1:]...)
	}
	if len(t.all) >= maxTickets {
		return "", time.Time{}, errTooManyTickets
	}
	secret := ticketPrefix + strings.ToLower(rand.Text()+rand.Text())
	until := now.Add(ticketLife)
	t.all = append(t.all, ticket{sha256.Sum256([]byte(secret)), who, until})
	return secret, access.Moment(until), nil
}

// redeem takes a ticket, which is good no more, and returns whose it was.
func (t *tickets) redeem(secret string, now time.Time) (who *access.Principal, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	for i, o := range t.all {
		if o.hash == hash {
			t.all = append(t.all[:i], t.all[i+1:]...)
			return o.who, true
		}
	}
	return nil, false
}

func (t *tickets) expire(now time.Time) {
	n := 0
	for n < len(t.all) && !now.Before(t.all[n].until) {
		n++
	}
	t.all = t.all[n:]
}

// same reports whether two came with the same token, or the like.
func same(a, b *access.Principal) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.TokenHash == b.TokenHash
}
