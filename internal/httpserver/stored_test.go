package httpserver

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
)

// call sends a request with a token, where there is one.
func (s *site) call(method, path, token string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, text := s.do(req) //nolint:bodyclose // do closes it
	return res.StatusCode, text
}

func issue(t *testing.T, store access.Store, name string, r access.Rights, expires time.Time) (access.Token, string) {
	t.Helper()
	record, token, err := access.New(name, r, expires)
	if err == nil {
		err = store.Add(t.Context(), record)
	}
	if err != nil {
		t.Fatal(err)
	}
	return record, token
}

// F-22.
func TestStoredTokensAreRememberedForAShortTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := &accesstest.Store{}
	a := NewStoredTokens(store, &StoredOptions{Now: func() time.Time { return now }})
	record, token := issue(t, store, "ann", access.AllRights(), now.Add(time.Hour))
	for range 3 {
		if p, err := a.Verify(t.Context(), token); err != nil || p.Name != "ann" || p.TokenHash != record.Hash {
			t.Fatalf("%v, %v", p, err)
		}
	}
	if store.Reads() != 1 {
		t.Errorf("the store was asked %d times", store.Reads())
	}
	if err := store.Revoke(t.Context(), record.ID, now); err != nil { // by another process
		t.Fatal(err)
	}
	now = now.Add(DefaultTokenAge - 1)
	if _, err := a.Verify(t.Context(), token); err != nil {
		t.Errorf("before its time: %v", err)
	}
	now = now.Add(1)
	p, _ := (&access.Token{Hash: record.Hash}).Principal(now)
	if _, err := a.Verify(t.Context(), token); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("revoked: %v", err)
	}
	if err := a.Recheck(t.Context(), p); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("revoked, asked again: %v", err)
	}
	if err := AnyOf(StaticTokens{}, a).(Rechecker).Recheck(t.Context(), p); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("revoked, asked among others: %v", err)
	}
}

// F-22.
func TestRevokingIsAtOnceInTheSameProcess(t *testing.T) {
	t.Parallel()
	store := &accesstest.Store{}
	a := NewStoredTokens(store, nil)
	record, token := issue(t, store, "ann", access.AllRights(), time.Time{})
	if _, err := a.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if err := a.Revoke(t.Context(), record.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verify(t.Context(), token); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("revoked: %v", err)
	}
	if err := a.Revoke(t.Context(), "none"); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
}

func TestStoredTokensAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := &accesstest.Store{}
	a := NewStoredTokens(store, &StoredOptions{Tokens: 2, Now: func() time.Time { return now }})
	for range 4 {
		_, token := issue(t, store, "ann", access.AllRights(), time.Time{})
		if _, err := a.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.known) != 2 {
		t.Errorf("%d are remembered", len(a.known))
	}
	if _, err := a.Verify(t.Context(), "guess"); !errors.Is(err, access.ErrInvalidToken) || store.Reads() != 4 {
		t.Errorf("a guess: %v, %d reads", err, store.Reads())
	}
	now = now.Add(time.Hour)
	_, token := issue(t, store, "ann", access.AllRights(), time.Time{})
	if _, err := a.Verify(t.Context(), token); err != nil || len(a.known) != 1 {
		t.Errorf("later %d are remembered: %v", len(a.known), err)
	}
}

func TestAStoreThatFailsIsNotTheTokensFault(t *testing.T) {
	t.Parallel()
	store := &accesstest.Store{}
	_, token := issue(t, store, "ann", access.AllRights(), time.Time{})
	store.Fail(errors.New("the disk is gone"))
	s := newSite(t, &Options{Auth: NewStoredTokens(store, nil)})
	code, text := s.call(http.MethodGet, "/x", token)
	if code != http.StatusServiceUnavailable || strings.Contains(text, "disk") {
		t.Errorf("%d %s", code, text)
	}
}

// F-22.
func TestTicketsOpenTheRoutesThatTakeThem(t *testing.T) {
	t.Parallel()
	tickets, err := access.NewTickets([]byte(strings.Repeat("k", 32)), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &accesstest.Store{}
	record, token := issue(t, store, "ann", access.AllRights(), time.Time{})
	stored := NewStoredTokens(store, nil)
	p, err := stored.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := PrincipalOf(r.Context())
		writeText(w, p.Name)
	})
	s := newSite(t, &Options{Auth: AnyOf(stored), Tickets: tickets, Routes: []Route{
		{Pattern: "/open", Handler: who, Tickets: true}, {Pattern: "/shut", Handler: who},
	}})
	ticket, _, err := tickets.Issue(p, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path, token string
		want                int
	}{
		{http.MethodGet, "/open?ticket=" + ticket, "", 200},
		{http.MethodGet, "/open?ticket=" + ticket + "x", "", 401},
		{http.MethodGet, "/open?ticket=" + token, "", 401},
		{http.MethodGet, "/open", ticket, 401},
		{http.MethodGet, "/open", "", 401},
		{http.MethodPost, "/open?ticket=" + ticket, "", 401},
		{http.MethodGet, "/shut?ticket=" + ticket, "", 401},
		{http.MethodGet, MCPPath + "?ticket=" + ticket, "", 401},
		{http.MethodGet, "/open?ticket=x", token, 200},
	} {
		if code, text := s.call(tc.method, tc.path, tc.token); code != tc.want || tc.want == 200 && text != "ann" {
			t.Errorf("%s %.10s: %d %s, want %d", tc.method, tc.path, code, text, tc.want)
		}
	}
	if err := stored.Revoke(t.Context(), record.ID); err != nil {
		t.Fatal(err)
	}
	if code, _ := s.call(http.MethodGet, "/open?ticket="+ticket, ""); code != http.StatusUnauthorized {
		t.Errorf("a ticket of a revoked token: %d", code)
	}
}
