package sse

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// F-18.
func TestAppend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   Event
		want string
	}{
		{Event{ID: "e-1", Type: "incident.updated", Data: []byte(`{"a":1}`)}, "id: e-1\nevent: incident.updated\ndata: {\"a\":1}\n\n"},
		{Event{Type: "message", Data: []byte("x")}, "data: x\n\n"},
		{Event{Data: []byte("a\nb\rc\r\nd\n")}, "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{Event{Data: []byte{}}, "data: \n\n"},
		{Event{ID: "e-9"}, "id: e-9\n\n"},
		{Event{Retry: "1500", Type: "dropped with the data"}, "retry: 1500\n\n"},
	} {
		got, err := Append([]byte("before "), tt.in)
		if err != nil || string(got) != "before "+tt.want {
			t.Errorf("%+v: got %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
	if got := AppendComment(nil, "heart\r\nbeat\rx"); string(got) != ": heart\n: beat\n: x\n\n" {
		t.Errorf("comment %q", got)
	}
	if got := AppendRetry(nil, 2500*time.Millisecond); string(got) != "retry: 2500\n\n" {
		t.Errorf("retry %q", got)
	}
}

// F-18: no value begins a field of its own.
func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	for _, e := range []Event{{ID: "a\nb"}, {ID: "a\rb"}, {ID: "a\x00b"}, {Type: "a\nid: 7", Data: []byte("x")}, {Type: "a\r", Data: []byte("x")}, {Retry: "-5"}, {Retry: "1\n"}} {
		got, err := Append([]byte("kept"), e)
		var field *FieldError
		if !errors.As(err, &field) || string(got) != "kept" {
			t.Errorf("%+q: got %q, %v", e, got, err)
		}
	}
}

// FuzzAppend holds that what was encoded is read back, and nothing else.
func FuzzAppend(f *testing.F) {
	f.Add("e-1", "up", []byte("a\r\nb\rc\n"))
	f.Add("", "message", []byte(" : \n\n\xff"))
	f.Fuzz(func(t *testing.T, id, typ string, data []byte) {
		frame, err := Append(nil, Event{ID: id, Type: typ, Data: append([]byte{}, data...)})
		if err != nil {
			return
		}
		r := NewReader(bytes.NewReader(append(frame, frame...)), 0)
		if typ == "" {
			typ = "message"
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		want := Event{Type: strings.ToValidUTF8(typ, "\uFFFD"), ID: strings.ToValidUTF8(id, "\uFFFD"), Data: []byte(strings.ToValidUTF8(lines, "\uFFFD"))}
		for range 2 {
			got, err := r.Next()
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Fatalf("%q: %v (-want +got):\n%s", frame, err, diff)
			}
		}
		if _, err := r.Next(); err == nil {
			t.Fatalf("%q holds a third event", frame)
		}
	})
}
