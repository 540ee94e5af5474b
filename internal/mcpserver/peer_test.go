package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// peer is the client's end of a pipe.
type peer struct {
	t    testing.TB
	in   *io.PipeWriter
	out  *io.PipeReader
	got  chan message
	done chan error // the result of ServeStdio
	seen []message  // passed over by answer
}

// connect serves a pipe until the peer closes it or ctx ends.
func (f *fixture) connect(ctx context.Context, t testing.TB) *peer {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{t: t, in: inW, out: outR, got: make(chan message, 1000), done: make(chan error, 1)}
	go func() {
		err := f.ServeStdio(ctx, inR, outW)
		_ = outW.Close()
		p.done <- err
	}()
	go func() {
		defer close(p.got)
		lines := bufio.NewReaderSize(outR, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if line[0] == '[' { // the answers to a batch
				p.got <- message{raw: line}
				continue
			}
			p.got <- parseMessage(t, strings.TrimSuffix(line, "\n"))
		}
	}()
	return p
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatalf("send %.80s: %v", l, err)
		}
	}
}

// next returns the next frame.
func (p *peer) next() message {
	p.t.Helper()
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case m, ok := <-p.got:
		if !ok {
			p.t.Fatal("the server closed the pipe")
		}
		return m
	case <-t.C:
		p.t.Fatal("no frame came")
	}
	return message{}
}

// answer returns the response with an id, and keeps what came before it.
func (p *peer) answer(id string) message {
	p.t.Helper()
	for {
		m := p.next()
		if m.Method == "" && string(m.ID) == id {
			return m
		}
		p.seen = append(p.seen, m)
	}
}

// call sends a request and returns its response.
func (p *peer) call(line string) message {
	p.t.Helper()
	p.send(line)
	return p.answer(string(parseMessage(p.t, line).ID))
}

// result is call for a request that must succeed.
func (p *peer) result(line string) map[string]any {
	p.t.Helper()
	m := p.call(line)
	if m.Error != nil {
		p.t.Fatalf("%.100s: %s", line, m)
	}
	return members(p.t, m.Result)
}

func (p *peer) fails(line string, code int64, text string) {
	p.t.Helper()
	m := p.call(line)
	if m.Error == nil || m.Error.Code != code || !strings.Contains(m.Error.Message, text) {
		p.t.Errorf("%.200s\n got %s\nwant code %d and %q", line, m, code, text)
	}
}

// initialize begins a legacy session.
func (p *peer) initialize(version string) map[string]any {
	p.t.Helper()
	res := p.result(initializeCall(`"init"`, version))
	p.send(notification("notifications/initialized", ""))
	return res
}

// close ends the input and waits for the server to end.
func (p *peer) close() {
	p.t.Helper()
	_ = p.in.Close()
	p.ended(nil)
}

// ended waits for the server to end with an error like want.
func (p *peer) ended(want error) {
	p.t.Helper()
	t := time.NewTimer(20 * time.Second)
	defer t.Stop()
	select {
	case err := <-p.done:
		if !errors.Is(err, want) {
			p.t.Errorf("ServeStdio = %v, want %v", err, want)
		}
	case <-t.C:
		p.t.Fatal("ServeStdio did not return")
	}
	for range p.got { //nolint:revive // the reader ends with the pipe
	}
}
