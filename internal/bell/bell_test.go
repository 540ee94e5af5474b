package bell

import (
	"slices"
	"testing"
)

func TestBell(t *testing.T) {
	t.Parallel()
	var (
		b     Bell
		heard [2][]string
	)
	b.Ring("nobody hears it")
	stop := b.Listen(func(name string) { heard[0] = append(heard[0], name) })
	b.Ring("one")
	stopOther := b.Listen(func(name string) { heard[1] = append(heard[1], name) })
	b.Ring("both")
	stop()
	stop()
	b.Ring("other")
	stopOther()
	b.Ring("nobody")
	if !slices.Equal(heard[0], []string{"one", "both"}) || !slices.Equal(heard[1], []string{"both", "other"}) {
		t.Errorf("%q", heard)
	}
}
