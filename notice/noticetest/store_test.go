package noticetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	noticetest.RunStore(t, func(*testing.T) notice.Store { return noticetest.NewStore() })
}
