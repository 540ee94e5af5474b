package feedserver

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/sse"
)

var update = flag.Bool("update", false, "write golden files")

// golden compares with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // no secret
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

var sample = feed.Event{
	ID: 9007199254740993, Epoch: "k3x", Topic: "incidents", Type: "incident.updated", Key: "INC-1 \"é\"", Time: time.Date(2026, 11, 30, 12, 0, 0, 120_000_000, time.UTC),
	Data: json.RawMessage(`{"n":1915883588174806058,"x":1.50,"s":"a\nb"}`),
}

// F-18, F-14, F-21.
func TestFramesOnTheWire(t *testing.T) {
	t.Parallel()
	at := feed.Position{Epoch: "k3x", ID: 42}
	plain := sample
	plain.Type, plain.Key, plain.Data = feed.DefaultType, "", json.RawMessage("null")
	lines := sample
	lines.Data = json.RawMessage("{\n\"a\": 1\r\n}") // no store of ours hands that out
	var all []byte
	for _, chunk := range [][]byte{
		greeting(2*time.Second, &at), greeting(1500*time.Millisecond, nil), Encode(sample), Encode(plain), Encode(lines),
		gapFrame(feed.Gap{From: 3, To: 42, Dropped: 39, Reason: feed.Slow}, at), gapFrame(feed.Gap{From: 7, Reason: feed.Epoch}, feed.Position{Epoch: "k3x"}),
		plainHeartbeat, heartbeat(&at), farewell(1234 * time.Millisecond),
	} {
		all = append(all, chunk...)
	}
	golden(t, "frames.golden", append(all, endChunk...))
}

// F-15, F-18.
func TestAFrameCarriesTheEvent(t *testing.T) {
	t.Parallel()
	for _, e := range []feed.Event{sample, {ID: 1, Epoch: "e", Topic: "a", Type: "message", Time: sample.Time, Data: json.RawMessage(`"` + strings.Repeat("x", feed.MaxData-2) + `"`)}} {
		events := sse.NewReader(strings.NewReader(string(bare(Encode(e)))), 2*feed.MaxData)
		got, err := events.Next()
		if err != nil || got.ID != (feed.Position{Epoch: e.Epoch, ID: e.ID}).String() || got.Type != e.Type {
			t.Fatalf("%v, %+v", err, got)
		}
		want, err := json.Marshal(e)
		if err != nil || string(want) != string(got.Data) {
			t.Errorf("%v: %.200s", err, got.Data)
		}
	}
}

func TestWhatCannotBeAFieldIsLeftOut(t *testing.T) {
	t.Parallel()
	e := sample
	e.Type = "a\nid: 1"
	if got := string(bare(Encode(e))); strings.Contains(got, "\nid:") || !strings.HasPrefix(got, "data: {") {
		t.Errorf("%q", got)
	}
}
