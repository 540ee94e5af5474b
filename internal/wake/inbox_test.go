package wake

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// signalled says when a wake has returned.
type signalled struct {
	notice.Waker
	done chan struct{}
}

func (s signalled) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	defer func() { s.done <- struct{}{} }()
	return s.Waker.Wake(ctx, d, proved)
}

// D-6, B-040: a Claude Code that was started without the channel swallows the
// push. The state stays notified, everybody can see it, the next adapter is
// tried, and nothing is shown twice.
func TestSwallowedPushGoesOn(t *testing.T) {
	t.Parallel()
	channel, c := channelServer(t)
	c.handshake("claude-code")
	var out bytes.Buffer
	pushed, ran := signalled{channel, make(chan struct{}, 1)}, signalled{NewExec(shell("cat"), &ExecOptions{Stdout: &out}), make(chan struct{}, 1)}
	in := notice.New(noticetest.NewStore(), nil)
	if err := in.Attach(t.Context(), "a",
		notice.Route{Waker: pushed, Patience: 2 * time.Second, Tries: 1}, notice.Route{Waker: ran}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	post(t, in, notice.Notice{ID: "n1", Source: notice.SourceWatch, Title: "memo", Text: "changed"})
	if l := c.hear(); l.Method != channelMethod {
		t.Fatalf("got %+v", l)
	}
	<-pushed.done
	if p, err := in.Pull(t.Context(), "a", "piggyback", nil); err != nil || len(p.Notices) != 0 {
		t.Errorf("got %v, %v: it is in the channel's hand", p, err)
	}
	<-ran.done
	in.Detach("a")
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r, err := in.Get(t.Context(), "a", "n1")
	if err != nil {
		t.Fatal(err)
	}
	var history []string
	for _, s := range r.Steps {
		history = append(history, string(s.State)+" "+s.Adapter+" "+s.Reason)
	}
	equal(t, history, []string{"persisted inbox ", "notified claude-channel ", "notified claude-channel no proof that it was shown", "seen exec "})
	if strings.Count(out.String(), "</watch-event>") != 1 {
		t.Errorf("the model was shown %q", out.String())
	}
	status, err := in.Status(t.Context(), "a")
	equal(t, []any{status.String(), err}, []any{"0 pending", error(nil)})
}
