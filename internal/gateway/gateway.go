package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

// Paths of the gateway. WorkerPath is the control URL of a sandbox, ArtifactsPath
// where it uploads to.
const (
	WorkerPath    = worker.DialPath
	ArtifactsPath = "/v1/sessions/{session}/artifacts/{sum}"
)

// uploadTime bounds one upload.
const uploadTime = 10 * time.Minute

// Artifacts keeps what sandboxes upload. Errors that callers tell apart are
// ErrDigest, ErrQuota and ErrFull.
type Artifacts interface {
	Put(ctx context.Context, session string, sum [sha256.Size]byte, content io.Reader) (uri string, size int64, err error)
}

// Options configure a [Gateway]. The zero value is usable.
type Options struct {
	Logger *slog.Logger // nil discards
}

// Gateway is the part of an HTTP server that sandboxes see.
type Gateway struct {
	host      *worker.Host
	auth      worker.Authenticator
	artifacts Artifacts
	log       *slog.Logger
}

// New returns the gateway of a host. auth is the one that the host has; nil
// artifacts refuse uploads.
func New(host *worker.Host, auth worker.Authenticator, artifacts Artifacts, o *Options) *Gateway {
	g := &Gateway{host: host, auth: auth, artifacts: artifacts, log: slog.New(slog.DiscardHandler)}
	if o != nil && o.Logger != nil {
		g.log = o.Logger
	}
	return g
}

// Mount adds the gateway's routes to a mux: the upgrade and the upload. Both
// authenticate by the worker token and by nothing else.
func (g *Gateway) Mount(mux *http.ServeMux) {
	mux.Handle(WorkerPath, g.host)
	mux.HandleFunc("PUT "+ArtifactsPath, g.upload)
}

// Shutdown sends the workers to other gateways and closes the host. An
// http.Server does not know of them: its own Shutdown leaves WebSockets alone.
func (g *Gateway) Shutdown(ctx context.Context) error {
	err := g.host.Drain(ctx)
	g.host.Close()
	return err
}

// upload stores one artifact of a session. It answers 201 with the address, 401
// without a token of the session, 403 for one that is over, 422 for content
// that is not that of its hash, 413 beyond the quota and 507 if there is no room.
func (g *Gateway) upload(w http.ResponseWriter, r *http.Request) {
	id, err := g.auth.Authenticate(r.Context(), bearer(r))
	if err != nil || id != r.PathValue("session") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is not of this session", http.StatusUnauthorized)
		return
	}
	sum, ok := parseSum(r.PathValue("sum"))
	if !ok {
		http.Error(w, "the name of an artifact is the SHA-256 of its content in lower-case hexadecimal", http.StatusBadRequest)
		return
	}
	// An upload may come to another gateway than the one that has the connection.
	rec, err := g.host.Record(r.Context(), id)
	switch {
	case err != nil && !errors.Is(err, worker.ErrUnknownSession):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the session could not be looked up", http.StatusServiceUnavailable)
		return
	case err != nil, g.artifacts == nil, rec.State.Final():
		http.Error(w, "the session is over", http.StatusForbidden)
		return
	}
	// Not an error of ours if the connection has no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTime))
	uri, size, err := g.artifacts.Put(r.Context(), id, sum, r.Body)
	switch {
	case errors.Is(err, ErrDigest):
		http.Error(w, "the content is not that of its name", http.StatusUnprocessableEntity)
	case errors.Is(err, ErrQuota):
		http.Error(w, "the session may store no more", http.StatusRequestEntityTooLarge)
	case errors.Is(err, ErrFull):
		g.log.WarnContext(r.Context(), "an artifact was not stored", logattr.Session(id), logattr.Err(err))
		http.Error(w, "there is no room for more artifacts", http.StatusInsufficientStorage)
	case err != nil:
		g.log.WarnContext(r.Context(), "an artifact was not stored", logattr.Session(id), logattr.Err(err))
		http.Error(w, "the artifact was not stored", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", uri)
		w.WriteHeader(http.StatusCreated)
		_ = json.MarshalWrite(w, map[string]any{"uri": uri, "size": size})
	}
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// Sandbox is what a new sandbox gets in its environment.
type Sandbox struct {
	Session *worker.Session
	// Token goes into a file of the sandbox, whose path is WORKER_TOKEN_FILE.
	Token string
	// Env is the environment without the token: names and values.
	Env map[string]string
}

// Open creates a session and all that its sandbox needs to call home.
// controlURL is where the sandbox reaches this gateway.
func (g *Gateway) Open(ctx context.Context, tokens *Tokens, id, controlURL string, p worker.Profile) (Sandbox, error) {
	if err := p.Validate(); err != nil {
		return Sandbox{}, err
	}
	token, err := tokens.Issue(id, p.TokenLife())
	if err != nil {
		return Sandbox{}, err
	}
	budgets, err := json.Marshal(p.Budgets)
	if err != nil {
		return Sandbox{}, fmt.Errorf("write budgets: %w", err)
	}
	s, err := g.host.Create(ctx, id, p)
	if err != nil {
		return Sandbox{}, err
	}
	return Sandbox{Session: s, Token: token, Env: map[string]string{
		worker.EnvSessionID: id, worker.EnvControlURL: controlURL,
		worker.EnvToolAllowlist: strings.Join(p.Tools, ","), worker.EnvBudgets: string(budgets),
	}}, nil
}
