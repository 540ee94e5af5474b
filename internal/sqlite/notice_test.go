package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func open(tb testing.TB, path string, o *Options) *DB {
	tb.Helper()
	db, err := Open(tb.Context(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// D-1, D-2, D-4, D-5, D-7, D-8.
func TestNotices(t *testing.T) {
	t.Parallel()
	noticetest.RunStore(t, func(t *testing.T) notice.Store {
		return open(t, filepath.Join(t.TempDir(), "ossicle.db"), nil).Notices()
	})
}
