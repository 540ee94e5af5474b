package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// A daemon that starts removes the files of what is no more, once they are old: not
// those of sessions that it knows, of processes that live, nor what it does not know.
func TestLeftoversGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	living := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer living.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	self := fmt.Sprintf(`{"pid":%d}`, os.Getpid())
	const old, young = leftoverAge + time.Hour, leftoverAge - time.Hour
	var want []string
	for _, f := range []struct {
		name, text string
		age        time.Duration
		stays      bool
	}{
		{"watches/kept.json", "{}", old, true},
		{"watches/lost.json", "{}", old, false},
		{"watches/fresh.json", "{}", young, true},
		{"listeners/kept.json", "{}", old, true},
		{"listeners/lost.json", "{}", old, false},
		{"listeners/notes.txt", "", old, true},
		{"live/up.json", `{"url":"` + living.URL + `"}`, old, true},
		{"live/down.json", `{"url":"` + gone.URL + `"}`, old, false},
		{"live/down2.json", "{}", young, true},
		{"live/busy.json", fmt.Sprintf(`{"url":%q,"pid":%d}`, gone.URL, os.Getpid()), old, true}, // its connections are not taken
		{"live/lost.lock", "", old, false},
		{"live/kept.lock", "", old, true},
		{"live/fresh.lock", "", young, true},
		{"ears/up.json", self, old, true},
		{"ears/down.json", `{"pid":2147483646}`, old, false},
		{"watches/.new.1", "", unfinishedAge + time.Hour, false},
		{"live/.new.2", "", time.Hour, true},
		{".new.3", "", old, false},
		{"settings.json", "{}", old, true},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-f.age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if f.stays {
			want = append(want, f.name)
		}
	}
	a := testAgents(t, dir)
	if err := a.Store.Save(t.Context(), agent.Meta{ID: "kept", CreatedAt: time.Now(), UpdatedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	serve(t, a, dir, "") // and it is done when the daemon is ready
	var got []string
	for _, sub := range []string{"", "watches", "listeners", "live", "ears"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.ToSlash(filepath.Join(sub, e.Name()))
			if e.Type().IsRegular() && (sub != "" || strings.HasPrefix(name, ".new.") || name == "settings.json") {
				got = append(got, name)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left %v\nwant %v", got, want)
	}
}
