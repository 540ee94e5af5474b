package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Budget bounds the steps of a shutdown, in their order.
type Budget struct {
	// Readiness is how long the server says that it is not ready, and still
	// serves, so that a load balancer can send others elsewhere.
	Readiness time.Duration
	// Requests is for streams to end politely, and for requests under way.
	Requests time.Duration
	// Close is for connections to close.
	Close time.Duration
}

// DefaultBudget is within the 25 s of the whole program. HTTP/2 takes a second to
// say goodbye.
var DefaultBudget = Budget{Readiness: 0, Requests: 11 * time.Second, Close: 2 * time.Second}

func (b Budget) withDefaults() Budget {
	if b.Readiness == 0 {
		b.Readiness = DefaultBudget.Readiness
	}
	if b.Requests == 0 {
		b.Requests = DefaultBudget.Requests
	}
	if b.Close == 0 {
		b.Close = DefaultBudget.Close
	}
	return b
}

// Listen binds the address, so that URL is known and failures are early. Run
// does it where the caller has not.
func (s *Server) Listen(ctx context.Context) error {
	if s.ln != nil {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Addr)
	if err != nil {
		return listenError(s.opts.Addr, err)
	}
	s.ln = ln
	return nil
}

// listenError says what to do about an address that cannot be had.
func listenError(addr string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // the rest of it is the address again
	}
	advice := "choose another address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "end what listens there, or choose another address; port 0 is any that is free"
	case errors.Is(err, syscall.EACCES):
		advice = "choose a port from 1024 up, or give the program the right to the lower ones"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "choose an address that this machine has"
	}
	return fmt.Errorf("listen on %s: %w; %s", addr, err, advice)
}

// Close gives up an address that Listen has bound and Run will not use.
func (s *Server) Close() error {
	if s.ln == nil {
		return nil
	}
	return s.ln.Close()
}

// URL is that of the MCP endpoint. It is empty before Listen.
func (s *Server) URL() string {
	if s.ln == nil {
		return ""
	}
	scheme := "http"
	if s.opts.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + s.ln.Addr().String() + MCPPath
}

// Run serves until ctx ends, and then shuts down within its budget: it says that
// it is not ready, ends streams politely, lets requests finish, and closes the
// rest. It returns nil when all ended within the budget.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "serving HTTP", logattr.Addr(s.ln.Addr().String()))
	served := make(chan error, 1)
	go func() {
		if s.opts.TLS != nil {
			served <- s.http.ServeTLS(listener{s.ln}, "", "")
			return
		}
		served <- s.http.Serve(listener{s.ln})
	}()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("serve HTTP: %w", err), s.shutdown(context.WithoutCancel(ctx)))
	case <-ctx.Done():
	}
	err := s.shutdown(context.WithoutCancel(ctx))
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

func (s *Server) shutdown(ctx context.Context) error {
	s.draining.Store(true)
	if s.opts.Budget.Readiness > 0 {
		t := time.NewTimer(s.opts.Budget.Readiness)
		defer t.Stop()
		<-t.C
	}
	return errors.Join(s.drain(ctx), s.closeConns(ctx))
}

// drain ends streams first: http.Server.Shutdown would wait for them, and does
// not know of those that were taken over.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Budget.Requests)
	defer cancel()
	routes := make(chan error, 1)
	go func() {
		if s.opts.Shutdown == nil {
			routes <- nil
			return
		}
		routes <- s.opts.Shutdown(ctx)
	}()
	err := s.mcp.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("shut down MCP: %w", err)
	}
	return errors.Join(err, <-routes)
}

func (s *Server) closeConns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Budget.Close)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("close connections: %w", err), s.http.Close())
}
