package access_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
)

func TestTheStoreInMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	accesstest.RunStore(t, func(*testing.T) func() access.Store {
		s := &accesstest.Store{}
		return func() access.Store { return s }
	})
}

// F-22.
func TestRightsOnTopicsOfTheFeed(t *testing.T) {
	t.Parallel()
	r := access.Rights{Topics: []string{"ossicle://feed/builds.*", "ossicle://feed/news"}, Publish: []string{"ci.*"}}
	for _, tc := range []struct {
		rights  access.Rights
		pattern string
		want    bool
	}{
		{r, "builds.main", true},
		{r, "builds.*", true},
		{r, "builds.x*", true},
		{r, "builds*", false},
		{r, "builds", false},
		{r, "*", false},
		{r, "news", true},
		{r, "news*", false},
		{r, "newspaper", false},
		{access.Rights{Topics: []string{"ossicle://feed/*"}}, "*", true},
		{access.Rights{Topics: []string{"ossicle://fee*"}}, "*", true},
		{access.AllRights(), "*", true},
		{access.Rights{}, "a", false},
		{access.Rights{Topics: []string{"memo://*"}}, "a", false},
	} {
		if got := tc.rights.MayReadAll(tc.pattern); got != tc.want {
			t.Errorf("%v: MayReadAll(%q) = %v", tc.rights.Topics, tc.pattern, got)
		}
	}
	if !r.MayRead("builds.main") || r.MayRead("ci.x") || !r.MayPublish("ci.x") || r.MayPublish("builds.main") || !access.AllRights().MayPublish("a") {
		t.Error("MayRead or MayPublish is wrong")
	}
}

func TestRightsAreKeptExactly(t *testing.T) {
	t.Parallel()
	want := access.Rights{Topics: []string{"a*"}, Publish: []string{"b"}, Sessions: []string{"*"}, Tools: []string{"c"}}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := access.ParseRights(b)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%s: %v, %v", b, got, err)
	}
	for _, bad := range []string{`{"topics":["a"],"except":["b"]}`, `{"Topics":["a"]}`, `{`, ``, `{"topics":["a"],"topics":["*"]}`} {
		if got, err := access.ParseRights([]byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
	for _, bad := range []access.Rights{
		{Topics: []string{""}},
		{Publish: []string{"a*b"}},
		{Tools: []string{"**"}},
		{Sessions: []string{"a\n"}},
		{Tools: []string{strings.Repeat("x", access.MaxPattern+1)}},
		{Topics: make([]string, access.MaxPatterns+1)},
	} {
		if bad.Check() == nil {
			t.Errorf("%v is allowed", bad)
		}
	}
}

// F-22.
func TestATokenIsSecretAndKnownByItsHash(t *testing.T) {
	t.Parallel()
	record, token, err := access.New("ci", access.AllRights(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	other, second, err := access.New("ci", access.AllRights(), time.Time{})
	if err != nil || token == second || record.ID == other.ID {
		t.Errorf("two tokens alike: %v", err)
	}
	if !strings.HasPrefix(token, access.TokenPrefix) || len(token)-len(access.TokenPrefix) < 128/5 || !access.Known(token) || access.Known(token+"a") || access.Known("ossicle_") {
		t.Errorf("a token of %d characters", len(token))
	}
	if record.Hash != access.Hash(token) || record.Created != access.Moment(record.Created) {
		t.Errorf("record %+v", record)
	}
	for name, bad := range map[string]func() error{
		"no name": func() error { _, _, err := access.New("", access.Rights{}, time.Time{}); return err },
		"markup":  func() error { _, _, err := access.New("a\x1b[0m", access.Rights{}, time.Time{}); return err },
		"rights": func() error {
			_, _, err := access.New("a", access.Rights{Tools: []string{""}}, time.Time{})
			return err
		},
		"expired": func() error { _, _, err := access.New("a", access.Rights{}, time.Now().Add(-time.Second)); return err },
	} {
		if bad() == nil {
			t.Errorf("%s: it was made", name)
		}
	}
}

// F-22.
func TestATokenEndsWhenItExpiresOrIsRevoked(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tok := access.Token{Name: "a", Rights: access.AllRights(), Expires: now, Hash: [32]byte{1}}
	if p, err := tok.Principal(now.Add(-time.Millisecond)); err != nil || p.Name != "a" || !p.Expires.Equal(now) || p.TokenHash != tok.Hash {
		t.Errorf("before: %v, %v", p, err)
	}
	if _, err := tok.Principal(now); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("expired: %v", err)
	}
	tok.Revoked = now.Add(-time.Hour)
	if _, err := tok.Principal(now.Add(-time.Minute)); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("revoked: %v", err)
	}
}

func tickets(t testing.TB, secret string) *access.Tickets {
	t.Helper()
	k, err := access.NewTickets([]byte(secret), nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const secret = "0123456789abcdef0123456789abcdef"

// F-22.
func TestATicketStandsForAPrincipalForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := access.Moment(time.Now().Add(time.Hour))
		p := &access.Principal{Name: "ann", Rights: access.AllRights(), Expires: end, TokenHash: [32]byte{7}}
		ticket, until, err := tickets(t, secret).Issue(p, []string{"a", "b.*"})
		if err != nil || !until.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("until %v: %v", until, err)
		}
		replica := tickets(t, secret)
		for range 2 { // a browser that reconnects comes with the same one
			got, err := replica.Verify(ticket)
			want := &access.Principal{Name: "ann", Rights: access.Rights{Topics: []string{"ossicle://feed/a", "ossicle://feed/b.*"}}, Expires: end, TokenHash: p.TokenHash}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
			time.Sleep(time.Minute - time.Millisecond - time.Since(until.Add(-time.Minute)))
		}
		time.Sleep(time.Millisecond)
		if _, err := replica.Verify(ticket); !errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("after its life: %v", err)
		}
		if _, err := tickets(t, "x"+secret).Verify(ticket); !errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("another secret: %v", err)
		}
	})
}

// F-22.
func TestATicketIsNoMoreThanItsPrincipal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &access.Principal{Name: "ann", Rights: access.Rights{Topics: []string{"ossicle://feed/a"}, Publish: []string{"*"}, Tools: []string{"*"}}, Expires: time.Now().Add(time.Second)}
		k := tickets(t, secret)
		ticket, until, err := k.Issue(p, nil)
		if err != nil || !until.Equal(p.Expires) {
			t.Errorf("until %v: %v", until, err)
		}
		got, err := k.Verify(ticket)
		if err != nil || got.Rights.MayPublish("a") || got.Rights.Tool("a") || got.Rights.Session("a") || !got.Rights.MayRead("a") || got.Rights.MayRead("b") {
			t.Errorf("rights %+v, %v", got, err)
		}
		p.Rights.Topics = []string{strings.Repeat("x", access.MaxTicket)}
		if _, _, err := k.Issue(p, nil); !errors.Is(err, access.ErrTooManyTopics) {
			t.Errorf("too long: %v", err)
		}
	})
}

func TestAShortSecretIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := access.NewTickets([]byte("short"), nil); err == nil {
		t.Error("taken")
	}
}

// F-22.
func FuzzTicket(f *testing.F) {
	// The one good ticket is the same in every process that fuzzes.
	k, err := access.NewTickets([]byte(secret), &access.TicketOptions{Life: 200 * 365 * 24 * time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	end := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _, err := k.Issue(&access.Principal{Name: "ann", Rights: access.AllRights(), Expires: end}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(access.TicketPrefix + base64.RawURLEncoding.EncodeToString([]byte(`{"n":"a","t":["*"],"u":99999999999999}`)) + ".")
	f.Add("a.b")
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := k.Verify(s); err == nil && s != good {
			t.Errorf("%q is taken for %v", s, p)
		}
	})
}
