package notice_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is an inbox with one agent, "a", in a bubble of its own time.
type desk struct {
	t *testing.T
	*notice.Inbox
	stop func()
}

// newDesk runs an inbox on store for agent "a" with routes. It is stopped at
// the end of the test.
func newDesk(t *testing.T, store notice.Store, o *notice.Options, routes ...notice.Route) *desk {
	t.Helper()
	d := &desk{t: t, Inbox: notice.New(store, o)}
	if err := d.Attach(t.Context(), "a", routes...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stopped := false
	d.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	t.Cleanup(d.stop)
	return d
}

// bubble runs f in a bubble of its own time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// post posts a notice with the given id.
func (d *desk) post(id string) {
	d.t.Helper()
	d.postNotice(notice.Notice{ID: id, Text: "text of " + id})
}

func (d *desk) postNotice(n notice.Notice) {
	d.t.Helper()
	if n.Agent == "" {
		n.Agent = "a"
	}
	if n.Source == "" {
		n.Source = notice.SourceWatch
	}
	if _, err := d.Post(d.t.Context(), n); err != nil {
		d.t.Fatal(err)
	}
}

// after lets time pass, and everything happen that it causes.
func after(t time.Duration) {
	time.Sleep(t)
	synctest.Wait()
}

func (d *desk) record(id string) notice.Record {
	d.t.Helper()
	r, err := d.Get(d.t.Context(), "", id)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *desk) state(id string) notice.State {
	d.t.Helper()
	return d.record(id).State
}

func (d *desk) pull(o *notice.PullOptions) []string {
	d.t.Helper()
	p, err := d.Pull(d.t.Context(), "a", "pull", o)
	if err != nil {
		d.t.Fatal(err)
	}
	ids := []string{}
	for _, n := range p.Notices {
		ids = append(ids, n.ID)
	}
	if err := p.Seen(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return ids
}

func batches(h *noticetest.Host) [][]string {
	out := [][]string{}
	for _, d := range h.Deliveries() {
		out = append(out, d.IDs())
	}
	return out
}
