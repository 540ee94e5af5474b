package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// hooks takes webhooks that others send (specification D-16). Whoever knows the
// secret of one may send it; nothing else about the sender is believed.
type hooks struct {
	byName map[string]hook
	feed   feed.Publisher
	inbox  *notice.Inbox
	log    *slog.Logger
}

type hook struct {
	config.Hook

	secret string
}

// leastSecret is how many characters the secret of a webhook has.
const leastSecret = 16

// newHooks reads the secrets. A hook without one is an error: it would take
// anything from anybody.
func newHooks(ctx context.Context, c *config.Config, getenv func(string) string, to feed.Publisher, inbox *notice.Inbox, log *slog.Logger) (*hooks, error) {
	h := &hooks{byName: map[string]hook{}, feed: to, inbox: inbox, log: log}
	for name, one := range c.Feed.Hooks {
		secret := getenv(one.SecretEnv)
		if secret == "" {
			return nil, fmt.Errorf("take hook %s: the variable %s, which holds its secret, is not set", name, one.SecretEnv)
		}
		if len(secret) < leastSecret {
			return nil, fmt.Errorf("take hook %s: the secret in %s has %d characters, and %d are the least", name, one.SecretEnv, len(secret), leastSecret)
		}
		if one.Agent != "" { // whom the operator has named there is an inbox for
			if err := inbox.Register(ctx, one.Agent); err != nil {
				return nil, fmt.Errorf("take hook %s: %w", name, err)
			}
		}
		h.byName[name] = hook{one, secret}
	}
	return h, nil
}

// routes are those of the hooks, which ask for a signature and no token.
func (h *hooks) routes() []httpserver.Route {
	if len(h.byName) == 0 {
		return nil
	}
	return []httpserver.Route{{Pattern: "POST /v1/hooks/{name}", Handler: h, Open: true}}
}

// delivered is a webhook whose signature is good.
type delivered struct {
	id   string // of the sender; a repetition has the same
	kind string
	body []byte
}

// ServeHTTP takes one webhook and answers when it is on disk.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	one, known := h.byName[name]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, feed.MaxData))
	switch _, large := errors.AsType[*http.MaxBytesError](err); {
	case large:
		httpserver.WriteProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a webhook has at most %d bytes", feed.MaxData))
		return
	case err != nil:
		httpserver.WriteProblem(w, http.StatusBadRequest, "the body did not come whole")
		return
	}
	d := delivered{body: body}
	if !known || one.verify(r.Header, &d) != nil {
		// The same for both, so that nobody can try out which hooks there are.
		httpserver.WriteProblem(w, http.StatusUnauthorized, "there is no such hook, or the signature is not that of its secret, or it is too old")
		return
	}
	if !json.Valid(body) {
		httpserver.WriteProblem(w, http.StatusBadRequest, "the body is not JSON")
		return
	}
	err = h.take(r, name, one, d)
	if _, refused := errors.AsType[*feed.BatchError](err); refused { // it will never be taken
		httpserver.WriteProblem(w, http.StatusBadRequest, "the body cannot be an event: "+err.Error())
		return
	}
	if err != nil {
		h.log.LogAttrs(r.Context(), slog.LevelWarn, "a webhook was not taken", logattr.URI("/v1/hooks/"+name), logattr.Err(err))
		httpserver.WriteProblem(w, http.StatusServiceUnavailable, "it could not be kept; send it again")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// verify checks the signature and reads what the headers say.
func (h *hook) verify(header http.Header, d *delivered) error {
	if h.Form == config.HookGitHub {
		d.id, d.kind = header.Get("X-Github-Delivery"), header.Get("X-Github-Event")
		return verifyGitHub(header.Get("X-Hub-Signature-256"), d.body, h.secret)
	}
	var payload struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(d.body, &payload) == nil {
		d.kind = payload.Type
	}
	d.id = header.Get("Webhook-Id")
	return wake.VerifyWebhook(header, d.body, h.secret, time.Now())
}

var errSignature = errors.New("the signature is not good")

func verifyGitHub(signature string, body []byte, secret string) error {
	got, err := hex.DecodeString(strings.TrimPrefix(signature, "sha256="))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	if err != nil || !strings.HasPrefix(signature, "sha256=") || !hmac.Equal(got, mac.Sum(nil)) {
		return errSignature
	}
	return nil
}

// take has the webhook on disk when it returns. A repetition changes nothing.
func (h *hooks) take(r *http.Request, name string, to hook, d delivered) error {
	if to.Agent != "" {
		key := ""
		if d.id != "" {
			key = "hook:" + name + ":" + notice.Plain(d.id, notice.MaxID)
		}
		_, err := h.inbox.Post(r.Context(), notice.Notice{
			Agent: to.Agent, Source: notice.SourceFeed, Title: strings.TrimSuffix(name+" "+notice.Plain(d.kind, notice.MaxID), " "), Text: string(d.body), DedupeKey: key,
		})
		return err
	}
	draft := feed.Draft{Topic: to.Topic, Type: eventType(d.kind), Data: d.body}
	if d.id != "" && len(d.id) <= feed.MaxKey {
		draft.IdempotencyKey = d.id
	}
	_, err := h.feed.Publish(r.Context(), []feed.Draft{draft})
	if _, invalid := errors.AsType[*feed.BatchError](err); invalid && draft.Type != feed.DefaultType {
		draft.Type = feed.DefaultType // a sender's type may be none of ours; its event is not lost for that
		_, err = h.feed.Publish(r.Context(), []feed.Draft{draft})
	}
	return err
}

// eventType is the type of an event by that of a webhook.
func eventType(kind string) string {
	if kind == "" || len(kind) > feed.MaxType || kind == feed.GapType {
		return feed.DefaultType
	}
	return kind
}
