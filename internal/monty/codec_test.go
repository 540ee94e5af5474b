package monty

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// stream makes a frame reader of events.
func stream(events ...[]byte) *frameReader {
	var b []byte
	for _, e := range events {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return &frameReader{r: bufio.NewReader(bytes.NewReader(b))}
}

func printEvent(text string) []byte {
	return appendMessage(nil, evPrint, appendString(appendUint(nil, 1, 1), 2, text))
}

func okEvent() []byte { return appendMessage(nil, evOK, nil) }

func TestFramesCollectOutput(t *testing.T) {
	t.Parallel()
	out := &output{limit: 11} // ends within a rune
	fr := stream(printEvent("abc"), printEvent(""), printEvent("dé"), okEvent(), printEvent(strings.Repeat("é", 500_000)), okEvent())
	for range 2 {
		if ev, err := fr.next(100, out); err != nil || ev.kind != evOK {
			t.Fatalf("event %d, %v", ev.kind, err)
		}
	}
	if got := out.String(); got != "abcdééé" || !out.cut {
		t.Errorf("output %q, cut %v", got, out.cut)
	}
	if cap(fr.buf) > 4096 {
		t.Errorf("a print of 1 MB took a buffer of %d bytes", cap(fr.buf))
	}
	if _, err := fr.next(100, out); !errors.Is(err, io.EOF) {
		t.Errorf("end of stream: %v", err)
	}
}

func TestFramesExactOutput(t *testing.T) {
	t.Parallel()
	out := &output{limit: 4}
	if _, err := stream(printEvent("abcd"), okEvent()).next(100, out); err != nil || out.cut || out.String() != "abcd" {
		t.Errorf("output %q, cut %v, %v", out.String(), out.cut, err)
	}
}

func TestFramesTooLarge(t *testing.T) {
	t.Parallel()
	fr := stream(appendMessage(nil, evComplete, make([]byte, 5000)), okEvent())
	_, err := fr.next(1000, nil)
	over, ok := errors.AsType[*oversizeError](err)
	if !ok || over.kind != evComplete || over.size < 5000 {
		t.Fatalf("large frame: %v", err)
	}
	if ev, err := fr.next(1000, nil); err != nil || ev.kind != evOK {
		t.Errorf("frame after a large one: %d, %v", ev.kind, err)
	}
}

func TestFramesThatLie(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{
		{0, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff, 0x52, 0},
		{5, 0, 0, 0, 0x52},
		{0, 0, 0, 0x20, 0x52, 1}, // says 512 MB and sends two
		{3, 0, 0, 0, 0x52, 0xff, 0xff},
		{1, 0, 0, 0, 0x0a},
	} {
		fr := &frameReader{r: bufio.NewReader(bytes.NewReader(b))}
		if ev, err := fr.next(1<<30, &output{limit: 10}); err == nil {
			t.Errorf("% x: event %d", b, ev.kind)
		}
		if cap(fr.buf) > 4<<20 {
			t.Errorf("% x: buffer of %d bytes", b, cap(fr.buf))
		}
	}
}

func TestEncodeLengths(t *testing.T) {
	t.Parallel()
	// Lengths of 1, 2 and 3 bytes, nested, are canonical.
	for _, n := range []int{0, 1, 60, 127, 128, 130, 16383, 16384, 70000} {
		text := `[{"k":["` + strings.Repeat("x", n) + `"]},7]`
		got, depth, err := encodeJSON([]byte(text))
		if err != nil || depth != 8 {
			t.Fatalf("n=%d: depth %d, %v", n, depth, err)
		}
		s := appendString(nil, objStr, strings.Repeat("x", n))
		pair := appendMessage(nil, 1, appendString(nil, objStr, "k"))
		pair = appendMessage(pair, 2, appendMessage(nil, objList, appendMessage(nil, 1, s)))
		list := appendMessage(nil, 1, appendMessage(nil, objDict, appendMessage(nil, 1, pair)))
		list = appendMessage(list, 1, appendUint(nil, objInt, 14))
		if want := appendMessage(nil, objList, list); !bytes.Equal(got, want) {
			t.Errorf("n=%d: encoded differently", n)
		}
	}
}

func TestReprs(t *testing.T) {
	t.Parallel()
	obj := func(num int32, b []byte) object { return object{num: num, typ: protowire.BytesType, b: b} }
	n := func(vs ...int64) []byte {
		var b []byte
		for i, v := range vs {
			b = appendUint(b, protowire.Number(i+1), uint64(v))
		}
		return b
	}
	date := n(2026, 1, 2)
	full := n(2026, 1, 2, 3, 4, 5, 6)
	aware := appendString(appendUint(n(2026, 1, 2, 3, 4), 8, uint64(math.MaxUint64-5399)), 9, "X")
	for _, c := range []struct {
		o         object
		str, repr string
	}{
		{obj(objDate, date), "2026-01-02", "datetime.date(2026, 1, 2)"},
		{obj(objDateTime, date), "2026-01-02 00:00:00", "datetime.datetime(2026, 1, 2, 0, 0)"},
		{obj(objDateTime, full), "2026-01-02 03:04:05.000006", "datetime.datetime(2026, 1, 2, 3, 4, 5, 6)"},
		{obj(objDateTime, aware), "2026-01-02 03:04:00-01:30", "datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone(datetime.timedelta(days=-1, seconds=81000), 'X'))"},
		{obj(objTime, n(3, 4, 5)), "03:04:05", "datetime.time(3, 4, 5)"},
		{obj(objTimeDelta, n(1, 2, 3)), "1 day, 0:00:02.000003", "datetime.timedelta(days=1, seconds=2, microseconds=3)"},
		{obj(objTimeDelta, nil), "0:00:00", "datetime.timedelta(0)"},
		{obj(objTimeDelta, n(-2, 3661)), "-2 days, 1:01:01", "datetime.timedelta(days=-2, seconds=3661)"},
		{obj(objTimeZone, nil), "UTC", "datetime.timezone.utc"},
		{obj(objTimeZone, n(3600)), "UTC+01:00", "datetime.timezone(datetime.timedelta(seconds=3600))"},
		{obj(objPath, []byte("a/b")), "a/b", "PosixPath('a/b')"},
		{obj(objBuiltin, []byte("len")), "<built-in function len>", "<built-in function len>"},
		{obj(objType, appendString(nil, 1, "int")), "<class 'int'>", "<class 'int'>"},
		{obj(objCycle, appendString(nil, 2, "[...]")), "[...]", "[...]"},
		{obj(objBigInt, appendMessage(nil, 2, make([]byte, 2000))), "<int of more than 4300 digits>", "<int of more than 4300 digits>"},
		{obj(objInstance, appendMessage(nil, 1, appendString(nil, 1, "P"))), "<P object>", "<P object>"},
		{obj(99, nil), "<unknown value>", "<unknown value>"},
	} {
		p := printer{limit: 1000}
		if got, err := p.str(c.o); err != nil || got != c.str {
			t.Errorf("str: %q, %v; want %q", got, err, c.str)
		}
		p = printer{limit: 1000}
		if err := p.repr(c.o, 0); err != nil || string(p.dst) != c.repr {
			t.Errorf("repr: %q, %v; want %q", p.dst, err, c.repr)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"abc": "abc", "abcdef": "abcd…", "abcéf": "abc…", "ab😀": "ab…", "a\xffb": "a\uFFFDb", "abc\xff\xff": "abc…"} {
		if got := clip(in, 4); got != want {
			t.Errorf("clip %q: %q, want %q", in, got, want)
		}
	}
}

// seedValues are values of each kind.
func seedValues() [][]byte {
	var seeds [][]byte
	for _, text := range []string{`null`, `[1,-2.5,"é",{"a":[true,false,null]}]`, `123456789012345678901234567890`, `{"":{}}`, `-0.0`, `"\ud83d\ude00\u0000"`} {
		b, _, err := encodeJSON([]byte(text))
		if err == nil {
			seeds = append(seeds, b)
		}
	}
	for num := protowire.Number(1); num <= 31; num++ {
		seeds = append(seeds, appendMessage(nil, num, seeds[1]), appendString(nil, num, "x'\n"), appendUint(nil, num, 3))
	}
	return seeds
}

// FuzzDecode: whatever a child sends, reading it does not panic, stays within
// its limits, and gives valid JSON or none.
func FuzzDecode(f *testing.F) {
	for _, s := range seedValues() {
		f.Add(s)
		f.Add(appendMessage(nil, evComplete, appendMessage(nil, 1, s)))
	}
	f.Add([]byte(sampleDump))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 4096
		if o, err := parseObject(b); err == nil {
			for _, lenient := range []bool{false, true} {
				out, err := jsonWriter{limit: limit, lenient: lenient}.append(nil, o, 0)
				if err == nil && !jsontext.Value(out).IsValid() {
					t.Errorf("invalid JSON %q", out)
				}
			}
			p := printer{limit: limit}
			if s, err := p.str(o); err == nil && strings.ToValidUTF8(s, "") != s {
				t.Errorf("text is not UTF-8: %q", s)
			}
		}
		_ = exceptionOf(b).Error()
		_, _ = pendingCalls(b)
		_, _ = decodeEvent(b)
		r := run{s: &scope{e: &Engine{resultLimit: limit}}}
		_, _, _ = r.decodeCall(b)
		if st := newState(b, 1, 64<<20); st.numbered && !bytes.Equal(st.appendLoad(nil, st.count)[headerSize:], appendMessage(nil, reqLoad, appendMessage(nil, 1, b))) {
			// The count may be spelled with more bytes than needed, by a fuzzer only.
			if protowire.SizeVarint(st.count) == st.end-st.at {
				t.Error("loading with the same count changes the dump")
			}
		}
		fr := &frameReader{r: bufio.NewReader(bytes.NewReader(b))}
		out := &output{limit: 100}
		for range 10 {
			if _, err := fr.next(limit, out); err != nil {
				break
			}
		}
		if len(out.String()) > 3*100 {
			t.Errorf("output of %d bytes", len(out.String()))
		}
	})
}

// FuzzJSON: JSON that goes in comes out with the same meaning, and what comes
// out goes in again as the same value.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`null`, `{"a":[1,2.5,-0,1e400,"\u00e9"]}`, `[[[]]]`, `1915883588174806058`, `99999999999999999999`, `"\ud800"`, `1 2`, `{"a":1,"a":2}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		first, _, err := encodeJSON(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the input was changed")
		}
		if valid := jsontext.Value(text).IsValid(); err == nil && !valid && len(bytes.TrimSpace(text)) > 0 {
			t.Fatalf("took %q", text)
		} else if err != nil && valid && !errors.Is(err, errDigits) {
			t.Fatalf("refused %q: %v", text, err)
		}
		if err != nil {
			return
		}
		o, err := parseObject(first)
		if err != nil {
			t.Fatal(err)
		}
		out, err := jsonWriter{limit: 1 << 30}.append(nil, o, 0)
		if errors.Is(err, errNoShape) || errors.Is(err, errDepth) {
			return // an infinite float, or deeper than we read
		}
		if err != nil {
			t.Fatal(err)
		}
		second, _, err := encodeJSON(out)
		if err != nil {
			t.Fatalf("refused its own %q: %v", out, err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%q came back as %q", text, out)
		}
	})
}
