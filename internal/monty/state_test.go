package monty

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
)

// sampleDump is what the pinned build dumps after "n=0" and then "1", with the
// recursion limit that we set.
var sampleDump = strings.ReplaceAll(
	"MONTY\x00\b\x00\von_event.py\x00\x00\von_event.py\x02\x01n\x02\x10<python-input-0>\x10<python-input-1>\x00\x00\x00\x02\x10<python-input-0>\x03n=0\x10<python-input-1>\x011\x01x\x01\x01\x01\x04\x00\x00\x00\x00\x01\x80\x80\x80 \x00\xc8\x01\xe8\a\x00\xd1\xc0\x02\x00\x00\x00\x00\x01\x05\x00",
	"\xc8\x01\xe8\a", "\xe8\a\xe8\a")

func TestStateCount(t *testing.T) {
	t.Parallel()
	st := newState([]byte(sampleDump), 7, 64<<20)
	if !st.numbered || st.count != 2 {
		t.Fatalf("numbered %v, count %d", st.numbered, st.count)
	}
	for _, count := range []uint64{0, 2, 127, 128, 1 << 40} {
		frame := st.appendLoad(nil, count)
		ev := frame[headerSize:]
		body := text([]byte(text(ev, reqLoad)), 1)
		again := newState([]byte(body), 8, 64<<20)
		if !again.numbered || again.count != count {
			t.Errorf("count %d came back as %d", count, again.count)
		}
		if want := sampleDump[st.end:]; body[again.end:] != want {
			t.Errorf("count %d changed what follows", count)
		}
	}
	for name, dump := range map[string]string{
		"empty":         "",
		"other magic":   "PONTY" + sampleDump[5:],
		"other version": "MONTY\x00\x09" + sampleDump[7:],
		"type checking": strings.Replace(sampleDump, "py\x00\x00", "py\x01\x00", 1),
		"suspended":     strings.Replace(sampleDump, "py\x00\x00", "py\x00\x01", 1),
		"short":         sampleDump[:24],
	} {
		st := newState([]byte(dump), 1, 1)
		if st.numbered {
			t.Errorf("%s: has a number", name)
		}
		want := appendFrame(nil, reqLoad, appendString(nil, 1, dump))
		if got := st.appendLoad(nil, 5); !bytes.Equal(got, want) {
			t.Errorf("%s: is not loaded as it is", name)
		}
	}
}

func TestStateMemory(t *testing.T) {
	t.Parallel()
	st := newState([]byte(sampleDump), 7, 64<<20)
	other, err := st.withMemory(100)
	if err != nil || other.memory != 100 || len(other.dump) >= len(st.dump) {
		t.Fatalf("other memory: %v", err)
	}
	back, err := other.withMemory(64 << 20)
	if err != nil || string(back.dump) != sampleDump {
		t.Errorf("back to the first memory: %v", err)
	}
	if same, err := st.withMemory(64 << 20); err != nil || same != st {
		t.Errorf("same memory: %v", err)
	}
	// After the limits comes the time that the scope has run, whole seconds first.
	old := strings.Replace(sampleDump, "\xe8\a\xe8\a\x00", "\xe8\a\xe8\a\x05", 1)
	if _, err := newState([]byte(old), 7, 64<<20).withMemory(100); old == sampleDump || err != nil {
		t.Errorf("a scope that ran for five seconds: %v", err)
	}
	decoy := newState([]byte(sampleDump+string(limitsPattern(64<<20))), 7, 64<<20)
	if _, err := decoy.withMemory(100); !errors.Is(err, errMemoryFixed) {
		t.Errorf("planted pattern: %v", err)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	s := &wordSet{}
	one := s.with("x = [a.b for c in d] # comment é_1 2z\n\"text {f}\" if for")
	if got, want := strings.Join(one.sorted(), " "), "a b c comment d f text x é_1"; got != want {
		t.Errorf("words %q, want %q", got, want)
	}
	if two := one.with("x = a"); two != one {
		t.Error("no new word made a new set")
	}
	var many strings.Builder
	for i := range maxWords + 1 {
		many.WriteString(" w" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + "_" + strconv.Itoa(i))
	}
	if full := one.with(many.String()); !full.full || len(full.set) != len(one.set) {
		t.Error("too many words are not noticed")
	}
}

func TestDefiners(t *testing.T) {
	t.Parallel()
	got := definers("import re, json as j\nfrom math import floor\ndef f(): pass\nasync def g(): pass\nclass C: pass\nif x:\n    def no(): pass\nh = lambda: 1\ny = 1\n")
	for _, want := range []string{"re", "json", "j", "floor", "f", "g", "C", "h"} {
		if !got[want] {
			t.Errorf("%s is not among the definers", want)
		}
	}
	if got["no"] || got["y"] {
		t.Errorf("definers %v", got)
	}
	if got := definers("t = '''\ndef f(): pass\n'''"); len(got) != 0 {
		t.Errorf("definers in a text: %v", got)
	}
}
