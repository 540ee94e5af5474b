// Package accesstest holds the contract of access.Store as tests, and a store in
// memory.
package accesstest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/internal/access"
)

// RunStore is the conformance suite of access.Store. open makes an empty store,
// and returns what opens it, again and again, as several processes would.
func RunStore(t *testing.T, open func(t *testing.T) func() access.Store) { // F-22
	t.Run("ARecordKeepsItsFields", func(t *testing.T) {
		again := open(t)
		full := make1(t, "ci é", access.Rights{
			Topics: []string{"ossicle://feed/builds.*", "memo://*"}, Publish: []string{"builds.*"}, Sessions: []string{"s"}, Tools: []string{"*"},
		}, time.Now().Add(time.Hour))
		bare := make1(t, "nobody", access.Rights{}, time.Time{})
		for _, tok := range []access.Token{full, bare} {
			must(t, again().Add(t.Context(), tok))
			got, err := again().ByHash(t.Context(), tok.Hash)
			must(t, err)
			same(t, tok, got)
		}
	})
	t.Run("ATokenThatIsNotThere", func(t *testing.T) {
		store := open(t)()
		must(t, store.Add(t.Context(), make1(t, "a", access.AllRights(), time.Time{})))
		if _, err := store.ByHash(t.Context(), access.Hash("other")); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("by hash: %v", err)
		}
		if err := store.Revoke(t.Context(), "other", time.Now()); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("revoke: %v", err)
		}
	})
	t.Run("NoneTwice", func(t *testing.T) {
		store := open(t)()
		first := make1(t, "a", access.AllRights(), time.Time{})
		must(t, store.Add(t.Context(), first))
		sameID, sameHash := make1(t, "b", access.Rights{}, time.Time{}), make1(t, "c", access.Rights{}, time.Time{})
		sameID.ID, sameHash.Hash = first.ID, first.Hash
		for _, tok := range []access.Token{first, sameID, sameHash} {
			if err := store.Add(t.Context(), tok); !errors.Is(err, access.ErrExists) {
				t.Errorf("add %s again: %v", tok.Name, err)
			}
		}
		list, err := store.List(t.Context())
		must(t, err)
		same(t, []access.Token{first}, list)
	})
	t.Run("RevokedOnceAndForAll", func(t *testing.T) {
		again := open(t)
		tok, other := make1(t, "a", access.AllRights(), time.Time{}), make1(t, "b", access.AllRights(), time.Time{})
		must(t, again().Add(t.Context(), tok))
		must(t, again().Add(t.Context(), other))
		at := access.Moment(time.Now())
		must(t, again().Revoke(t.Context(), tok.ID, at))
		must(t, again().Revoke(t.Context(), tok.ID, at.Add(time.Hour)))
		tok.Revoked = at
		for _, want := range []access.Token{tok, other} {
			got, err := again().ByHash(t.Context(), want.Hash)
			must(t, err)
			same(t, want, got)
		}
	})
	t.Run("ListedInOrder", func(t *testing.T) {
		again := open(t)
		if list, err := again().List(t.Context()); err != nil || len(list) != 0 {
			t.Fatalf("empty: %v, %v", list, err)
		}
		begun := access.Moment(time.Now())
		var want []access.Token
		for i, id := range []string{"b", "a", "c"} {
			tok := make1(t, fmt.Sprint(i), access.Rights{Tools: []string{id}}, time.Time{})
			tok.ID, tok.Created = id, begun
			if id == "b" {
				tok.Created = begun.Add(-time.Millisecond)
			}
			must(t, again().Add(t.Context(), tok))
			want = append(want, tok)
		}
		list, err := again().List(t.Context())
		must(t, err)
		same(t, want, list)
	})
	t.Run("EndedOnesGo", func(t *testing.T) {
		store := open(t)()
		now := access.Moment(time.Now())
		long, late := now.Add(-access.KeepEnded-time.Millisecond), now.Add(-access.KeepEnded)
		var want []access.Token
		for i, c := range []struct {
			expires, revoked time.Time
			stays            bool
		}{
			{stays: true},
			{expires: long},
			{revoked: long},
			{expires: late, stays: true},
			{revoked: late, stays: true},
			{expires: now.Add(time.Hour), revoked: long},
			{expires: long, revoked: now},
			{expires: now.Add(time.Hour), stays: true},
		} {
			tok := make1(t, fmt.Sprint(i), access.Rights{}, time.Time{})
			tok.ID, tok.Created, tok.Expires, tok.Revoked = fmt.Sprint("t", i), now.Add(-2*access.KeepEnded), c.expires, c.revoked
			must(t, store.Add(t.Context(), tok))
			if c.stays {
				want = append(want, tok)
			}
		}
		last := make1(t, "last", access.Rights{}, time.Time{})
		last.Created = now
		must(t, store.Add(t.Context(), last))
		list, err := store.List(t.Context())
		must(t, err)
		same(t, append(want, last), list)
	})
	t.Run("ManyAtOnce", func(t *testing.T) {
		again := open(t)
		var wg sync.WaitGroup
		for range 4 {
			store := again()
			wg.Go(func() {
				for i := range 5 {
					tok, _, err := access.New(fmt.Sprint(i), access.AllRights(), time.Time{})
					if err == nil {
						err = store.Add(t.Context(), tok)
					}
					if err == nil {
						err = store.Revoke(t.Context(), tok.ID, time.Now())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if list, err := again().List(t.Context()); err != nil || len(list) != 20 {
			t.Errorf("%d tokens, %v", len(list), err)
		}
	})
}

func make1(t *testing.T, name string, r access.Rights, expires time.Time) access.Token {
	t.Helper()
	tok, _, err := access.New(name, r, expires)
	must(t, err)
	return tok
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
