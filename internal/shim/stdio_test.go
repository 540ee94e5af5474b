package shim_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/shim"
)

// patience bounds what should happen at once.
const patience = 20 * time.Second

type seen struct {
	mu  sync.Mutex
	all []attach.Evidence
}

func (s *seen) sink(e attach.Evidence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

func (s *seen) kinds() (kinds []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		k := string(e.Kind)
		if e.Reason != "" {
			k += " " + string(e.Reason)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// run relays a helper and returns what came of it.
func run(t *testing.T, name string, in io.Reader, out, errw io.Writer) (kinds []string, err error) {
	t.Helper()
	s := &seen{}
	o := observe.New(s.sink, &observe.Options{Server: "m"})
	err = shim.Stdio(t.Context(), shim.StdioOptions{
		Args: []string{os.Args[0]}, Env: append(os.Environ(), helperEnv+"="+name), In: in, Out: out, Err: errw, Observer: o,
	})
	o.Close()
	return s.kinds(), err
}

// Every byte passes, both ways, whatever it is: no lines, no text, more than any
// buffer.
//
// M-19.
func TestStdioIsTransparent(t *testing.T) {
	t.Parallel()
	random := make([]byte, 20<<20+7)
	_, _ = rand.Read(random)
	for name, text := range map[string][]byte{
		"nothing": {}, "no line end": []byte(`{"id":1`), "random": random, "crlf": []byte("a\r\n\r\n\x00\xff\n"), "zeros": make([]byte, 5<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			kinds, err := run(t, "copy", bytes.NewReader(text), &out, nil)
			if err != nil || !bytes.Equal(out.Bytes(), text) {
				t.Errorf("%d bytes became %d: %v", len(text), out.Len(), err)
			}
			if kinds != nil {
				t.Errorf("saw %q", kinds)
			}
		})
	}
}

// Standard error, the last words and the exit code pass; that a server ended
// though nobody told it to is evidence.
//
// M-19, A-5.
func TestStdioEnds(t *testing.T) {
	t.Parallel()
	t.Run("exit code", func(t *testing.T) {
		t.Parallel()
		host, hold := io.Pipe() // a host that says nothing
		defer func() { _ = hold.Close() }()
		var out, errw bytes.Buffer
		began := time.Now()
		kinds, err := run(t, "words", host, &out, &errw)
		var exit *shim.ExitError
		if !errors.As(err, &exit) || exit.Code != 7 || out.String() != "out\n" || errw.String() != "bad weather\n" {
			t.Errorf("%v, %q, %q", err, out.String(), errw.String())
		}
		if d := cmp.Diff([]string{"server_error exited"}, kinds); d != "" {
			t.Error(d)
		}
		if took := time.Since(began); took > patience/2 {
			t.Errorf("waited %s for a descendant", took)
		}
	})
	t.Run("host speaks to it all the same", func(t *testing.T) {
		t.Parallel()
		host, hold := io.Pipe()
		defer func() { _ = hold.Close() }()
		said := make(chan struct{})
		go func() { // what it cannot take does not mean that the host has said all
			<-said
			_, _ = io.WriteString(hold, "hello\n")
		}()
		kinds, err := run(t, "shut", host, &first{once: sync.OnceFunc(func() { close(said) })}, nil)
		var exit *shim.ExitError
		if !errors.As(err, &exit) || exit.Code != 7 {
			t.Error(err)
		}
		if d := cmp.Diff([]string{"server_error exited"}, kinds); d != "" {
			t.Error(d)
		}
	})
	t.Run("slow host", func(t *testing.T) {
		t.Parallel()
		var out slow
		if _, err := run(t, "burst", strings.NewReader(""), &out, nil); err != nil || out.n != 60<<10 {
			t.Errorf("%d bytes, %v", out.n, err)
		}
	})
	t.Run("not there", func(t *testing.T) {
		t.Parallel()
		s := &seen{}
		o := observe.New(s.sink, nil)
		err := shim.Stdio(t.Context(), shim.StdioOptions{Args: []string{"no-such-command-here"}, In: strings.NewReader(""), Out: io.Discard, Observer: o})
		o.Close()
		if d := cmp.Diff([]string{"server_error command_not_found"}, s.kinds()); d != "" || err == nil {
			t.Errorf("%v %s", err, d)
		}
	})
	t.Run("told to end", func(t *testing.T) {
		t.Parallel()
		host, hold := io.Pipe()
		defer func() { _ = hold.Close() }()
		s := &seen{}
		o := observe.New(s.sink, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		done := make(chan error, 1)
		go func() {
			done <- shim.Stdio(ctx, shim.StdioOptions{
				Args: []string{os.Args[0]}, Env: append(os.Environ(), helperEnv+"=deaf"), In: host, Out: io.Discard, Observer: o,
			})
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
		o.Close()
		if k := s.kinds(); k != nil {
			t.Errorf("saw %q", k)
		}
	})
}

// first calls once at what comes first.
type first struct{ once func() }

func (f *first) Write(b []byte) (int, error) {
	f.once()
	return len(b), nil
}

// slow takes its time.
type slow struct{ n int }

func (s *slow) Write(b []byte) (int, error) {
	time.Sleep(700 * time.Millisecond) // longer than the wait for last words
	s.n += len(b)
	return len(b), nil
}

// A client of either era works through the relay, and what it did is seen.
//
// M-19, A-5.
func TestStdioClients(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]string{
		"":           {"discover_observed", "initialize_observed", "tools_list_observed", "tool_call_observed"},
		"2025-06-18": {"initialize_observed", "tools_list_observed", "tool_call_observed", "connection_closed"},
	} {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			hostIn, shimOut := io.Pipe()
			shimIn, hostOut := io.Pipe()
			type result struct {
				kinds []string
				err   error
			}
			done := make(chan result, 1)
			go func() {
				kinds, err := run(t, "mcp", shimIn, shimOut, nil)
				_ = shimOut.Close()
				done <- result{kinds, err}
			}()
			c := mcp.NewClient(&mcp.Implementation{Name: "host"}, nil)
			session, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: hostIn, Writer: hostOut}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if l, err := session.ListTools(t.Context(), nil); err != nil || len(l.Tools) != 1 {
				t.Errorf("%v", err)
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "say", Arguments: map[string]any{"a": 1}}); err != nil {
				t.Error(err)
			}
			_ = session.Close()
			_ = hostOut.Close()
			r := <-done
			if d := cmp.Diff(want, r.kinds); d != "" || r.err != nil {
				t.Errorf("%v %s", r.err, d)
			}
		})
	}
}
