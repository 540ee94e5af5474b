package feed_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// F-5: each limit, at it and beyond it.
func TestClean(t *testing.T) {
	t.Parallel()
	ok := feed.Draft{Topic: "a", Data: json.RawMessage(` { "n" : 1915883588174806058.0 } `)}
	got, err := feed.Clean([]feed.Draft{ok})
	if err != nil || string(got[0].Data) != `{"n":1915883588174806058.0}` || got[0].Type != "message" || ok.Type != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	with := func(change func(*feed.Draft)) feed.Draft { d := ok; change(&d); return d }
	large := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	for name, tt := range map[string]struct {
		draft feed.Draft
		large bool
		field string
	}{
		"topic at the limit":  {with(func(d *feed.Draft) { d.Topic = strings.Repeat("t", 128) }), false, ""},
		"topic beyond it":     {with(func(d *feed.Draft) { d.Topic = strings.Repeat("t", 129) }), true, "topic"},
		"topic in capitals":   {with(func(d *feed.Draft) { d.Topic = "A" }), false, "topic"},
		"topic with a dot":    {with(func(d *feed.Draft) { d.Topic = "0.a_b-c" }), false, ""},
		"topic begins badly":  {with(func(d *feed.Draft) { d.Topic = "-a" }), false, "topic"},
		"no topic":            {with(func(d *feed.Draft) { d.Topic = "" }), false, "topic"},
		"data at the limit":   {with(func(d *feed.Draft) { d.Data = large(256 << 10) }), false, ""},
		"data beyond it":      {with(func(d *feed.Draft) { d.Data = large(256<<10 + 1) }), true, "data"},
		"data far beyond":     {with(func(d *feed.Draft) { d.Data = large(1 << 20) }), true, "data"},
		"no JSON":             {with(func(d *feed.Draft) { d.Data = json.RawMessage("{") }), false, "data"},
		"no data":             {with(func(d *feed.Draft) { d.Data = nil }), false, "data"},
		"a name twice":        {with(func(d *feed.Draft) { d.Data = json.RawMessage(`{"a":1,"a":2}`) }), false, "data"},
		"type of the feed":    {with(func(d *feed.Draft) { d.Type = "gap" }), false, "type"},
		"type with a line":    {with(func(d *feed.Draft) { d.Type = "a\nb" }), false, "type"},
		"type too long":       {with(func(d *feed.Draft) { d.Type = strings.Repeat("t", 129) }), true, "type"},
		"key of broken UTF-8": {with(func(d *feed.Draft) { d.Key = "\xff" }), false, "key"},
		"long idempotency":    {with(func(d *feed.Draft) { d.IdempotencyKey = strings.Repeat("k", 513) }), true, "idempotency key"},
	} {
		_, err := feed.Clean([]feed.Draft{ok, tt.draft})
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var batch *feed.BatchError
		var invalid *feed.InvalidError
		if !errors.As(err, &batch) || batch.Index != 1 || !errors.As(err, &invalid) || invalid.Field != tt.field || errors.Is(err, feed.ErrTooLarge) != tt.large {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := feed.Clean(make([]feed.Draft, 1001)); !errors.Is(err, feed.ErrTooLarge) {
		t.Errorf("1001 events: %v", err)
	}
}

// F-17.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		patterns       []string
		match, nothing []string
	}{
		{nil, []string{"a", "b.c"}, nil},
		{[]string{"*", "a"}, []string{"a", "b"}, nil},
		{[]string{"a"}, []string{"a"}, []string{"ab", "b"}},
		{[]string{"b*", "a", "a"}, []string{"a", "b", "bc", "b.c"}, []string{"ab"}},
	} {
		f, err := feed.ParseFilter(tt.patterns...)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range tt.match {
			if !f.Match(topic) {
				t.Errorf("%v does not select %s", tt.patterns, topic)
			}
		}
		for _, topic := range tt.nothing {
			if f.Match(topic) {
				t.Errorf("%v selects %s", tt.patterns, topic)
			}
		}
	}
	one, _ := feed.ParseFilter("b", "a*", "b")
	two, _ := feed.ParseFilter("a*", "b")
	if one != two || len(one.Patterns()) != 2 {
		t.Errorf("%v and %v differ", one, two)
	}
	for _, bad := range []string{"", "**", "a**", "*a", "A", "a b"} {
		if _, err := feed.ParseFilter(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := feed.ParseFilter(make([]string, 65)...); !errors.Is(err, feed.ErrTooLarge) {
		t.Errorf("65 patterns: %v", err)
	}
}

// F-19: only what was written is read.
func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"abc-12", "abc-0", "a-9223372036854775807", "a-9223372036854775808", "-1", "a-", "a-01", "a-+1", "a--1", "A-1", "a-1-2", "a-1\n", strings.Repeat("a", 33) + "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := feed.ParsePosition(s)
		if err == nil && (p.String() != s || p.ID < 0 || p.Epoch == "" || strings.ContainsAny(s, "\r\n\x00 ")) {
			t.Errorf("%q is %+v", s, p)
		}
	})
}

func TestParsePosition(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{"abc-12": true, "abc-0": true, "a-9223372036854775807": true, "a-9223372036854775808": false, "-1": false, "a-": false, "": false, "a": false, "a-01": false, "a-+1": false, "a--1": false, "A-1": false, "a-1-2": false} {
		if _, err := feed.ParsePosition(s); (err == nil) != want {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	t.Parallel()
	for _, p := range []feed.Policy{feed.DropOldest, feed.DropNewest, feed.Disconnect} {
		if got, err := feed.ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := feed.ParsePolicy("drop"); err == nil {
		t.Error("no error")
	}
}
