package pythontest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/ossicle/ossicle/internal/python"
)

//go:embed testdata/corpus.json
var corpus []byte

// testCorpus compares programs with what CPython printed for them. A case that
// fails must be listed, and one that is listed must fail.
func testCorpus(t *testing.T, e python.Engine, fails map[int]string) {
	var c struct {
		Origin string
		Event  json.RawMessage
		Cases  []struct{ Code, Out string }
	}
	if err := json.NewDecoder(bytes.NewReader(corpus)).Decode(&c); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i, k := range c.Cases {
		s := scope(t, e, nil)
		r, err := s.Run(t.Context(), k.Code, map[string]json.RawMessage{"event": c.Event}, python.Limits{Time: ample})
		ok := err == nil && r.Output == k.Out
		if ok {
			passed++
		}
		reason, listed := fails[i]
		switch {
		case !ok && !listed:
			t.Errorf("case %d:\n%s\nprinted %q, error %v\n%s: %q", i, k.Code, r.Output, err, c.Origin, k.Out)
		case ok && listed:
			t.Errorf("case %d is listed as failing (%s) and passes:\n%s", i, reason, k.Code)
		}
		s.Close()
	}
	t.Logf("%d of %d cases as %s", passed, len(c.Cases), c.Origin)
}
