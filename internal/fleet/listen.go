package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
)

// serve listens for workers.
func (f *Fleet) serve(ctx context.Context) error {
	f.socket = filepath.Join(f.dir, socketName)
	l, err := listenUnix(ctx, f.socket)
	if err != nil {
		return err
	}
	f.serveOn(l, nil)
	address := f.config.Gateway.Listen
	if address == "" || f.o.Data == "" {
		return nil
	}
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		_ = os.Remove(path) // of a process that was killed; we hold the directory
		l, err = listenUnix(ctx, path)
	} else if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
		err = fmt.Errorf("serve gateway: %w", err)
	}
	if err != nil {
		return err
	}
	f.log.InfoContext(ctx, "serving workers", logattr.Addr(l.Addr().String()))
	f.serveOn(l, f.o.TLS)
	return nil
}

// listenUnix listens on a socket to which the user of sandboxes may connect. The
// token is what lets a worker in.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve gateway: %w", err)
	}
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("serve gateway: %w", err), l.Close())
	}
	return l, nil
}

func (f *Fleet) serveOn(l net.Listener, conf *tls.Config) {
	mux := f.mux()
	server := &http.Server{Handler: mux, TLSConfig: conf, ReadHeaderTimeout: margin, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conf != nil {
			_ = server.ServeTLS(l, "", "")
			return
		}
		_ = server.Serve(l)
	}()
	f.down.Push("listener", time.Second, func(context.Context) error {
		err := server.Close()
		<-served
		return err
	})
}

// routes are the gateway's on another server: both know their callers by the
// worker token and by nothing else.
func (f *Fleet) routes() []httpserver.Route {
	mux := f.mux()
	return []httpserver.Route{
		{Pattern: gateway.WorkerPath, Handler: mux, Open: true},
		{Pattern: "PUT " + gateway.ArtifactsPath, Handler: mux, Open: true},
		{Pattern: "POST " + gateway.PeersPath, Handler: mux, Open: true},
	}
}

func (f *Fleet) mux() *http.ServeMux {
	mux := http.NewServeMux()
	f.gateway.Mount(mux)
	if f.calls != nil {
		f.calls.Mount(mux)
	}
	return mux
}
