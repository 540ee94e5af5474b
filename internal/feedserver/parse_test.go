package feedserver

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// F-6, F-5: whatever comes is refused or published as it was spelt.
func FuzzPublish(f *testing.F) {
	for _, s := range []string{
		`{"data":1}`, `{"type":"t","key":"k","idempotency_key":"i","data":{"n":1915883588174806058,"x":1.50}}`, `[{"data":null},{"data":"\ud83d\ude00"}]`,
		`[]`, `[[]]`, `{"data":1,"data":2}`, `{"d\u0061ta":1}`, `{"data":"\ud800"}`, ` [ { "data" : 1e400 } ] `, "{\"data\":\"\xff\"}", `{"type":1,"data":1}`, `{`, ``,
	} {
		f.Add([]byte(s), "key")
	}
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		drafts, err := parseBody(b, "a", key)
		if err != nil {
			return
		}
		if len(drafts) > feed.MaxBatch || !json.Valid(b) {
			t.Fatalf("%d events of %q", len(drafts), b)
		}
		clean, err := feed.Clean(drafts)
		if err != nil {
			return
		}
		for _, d := range clean {
			e := feed.Event{ID: 1, Epoch: "e", Topic: d.Topic, Type: d.Type, Key: d.Key, Data: d.Data}
			frame := bare(Encode(e))
			if bytes.Count(frame, []byte("\n\n")) != 1 || !bytes.HasSuffix(frame, []byte("\n\n")) || bytes.ContainsAny(frame, "\r") {
				t.Fatalf("%q makes the frame %q", b, frame)
			}
			var back struct{ Data json.RawMessage }
			if err := json.Unmarshal(appendEvent(nil, e), &back); err != nil || string(back.Data) != string(d.Data) {
				t.Fatalf("%q became %s: %v", b, back.Data, err)
			}
		}
	})
}
