package feedserver_test

import (
	"testing"
)

func TestAStreamGetsWhatIsPublished(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	st := s.open("?topic=a&topic=b*", "")
	s.publish("a", 2)
	s.publish("c", 1)
	r := s.publish("b.x", 1)
	for _, want := range []int64{1, 2, r[0].ID} {
		if e, f := st.event(); f.ID != want || e.ID == "" {
			t.Errorf("%+v %+v, want %d", e, f, want)
		}
	}
	if s.feed.Stats().Direct != 1 {
		t.Errorf("%+v", s.feed.Stats())
	}
}
