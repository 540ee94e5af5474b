package cli

import (
	"testing"

	"github.com/ossicle/ossicle/watch"
)

func TestOneThingIsCountedAsOne(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ got, want string }{
		{counted(0, "event"), "0 events"},
		{counted(1, "event"), "1 event"},
		{counted(int64(2), "event"), "2 events"},
		{counted(1, "row", "waits", "wait"), "1 row waits"},
		{counted(2, "row", "waits", "wait"), "2 rows wait"},
		{watchLine(watch.Status{Name: "notes", URI: "memo://notes", Events: 1, Notices: 1}), "notes memo://notes, 1 event, 1 notice"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}
