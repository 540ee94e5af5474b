package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Kinds of errors that callers tell apart. Each is wrapped by what returns it.
var (
	// ErrForbidden: the service account may not do that.
	ErrForbidden = errors.New("the cluster forbids it; docs/channel.md has the rules that the service account needs")
	// ErrUnauthorized: the API server does not know us.
	ErrUnauthorized = errors.New("the cluster does not accept our credentials")
	// ErrQuota: the namespace may hold no more.
	ErrQuota = errors.New("a quota of the namespace is exhausted")
	// ErrNotFound: there is no such thing, for instance no such namespace.
	ErrNotFound = errors.New("the cluster has no such object")
	// ErrExists: the session has a sandbox, or something else has its name.
	ErrExists = errors.New("there is one already")
	// ErrInvalid: the cluster refuses the object itself.
	ErrInvalid = errors.New("the cluster refuses the object")
	// ErrBusy: the API server wants to be asked later.
	ErrBusy = errors.New("the API server is busy; try again later")
	// ErrTimeout: the API server did not answer in time.
	ErrTimeout = errors.New("the API server did not answer in time")
	// ErrUnreachable: there is no connection to the API server.
	ErrUnreachable = errors.New("the API server cannot be reached")
	// ErrNoCluster: nothing says where a cluster is.
	ErrNoCluster = errors.New("no cluster is configured; give a kubeconfig, or run in a pod with a service account")
	// ErrClosed: the driver was closed.
	ErrClosed = errors.New("the driver is closed")

	errGone     = errors.New("the version asked for is too old")
	errConflict = errors.New("somebody else changed it")
)

// APIError is an answer of the API server that says no.
type APIError struct {
	Op         string // what we did, for instance "create job"
	Code       int    // HTTP status
	Reason     string // of the API's Status, for instance AlreadyExists
	Message    string // one line, from the server
	RetryAfter time.Duration
}

// Error implements error.
func (e *APIError) Error() string {
	what := cmp.Or(e.Reason, http.StatusText(e.Code), "refused")
	if kind := e.kind(); kind != nil {
		return fmt.Sprintf("%s: %s: %d %s: %s", e.Op, kind, e.Code, what, e.Message)
	}
	return fmt.Sprintf("%s: %d %s: %s", e.Op, e.Code, what, e.Message)
}

// Is has an APIError be one of the kinds above.
func (e *APIError) Is(target error) bool {
	kind := e.kind()
	return kind != nil && kind == target
}

func (e *APIError) kind() error {
	switch e.Code {
	case http.StatusUnauthorized:
		return ErrUnauthorized
	case http.StatusForbidden:
		if isQuota(e.Message) {
			return ErrQuota
		}
		return ErrForbidden
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		if e.Reason == "AlreadyExists" {
			return ErrExists
		}
		return errConflict
	case http.StatusGone:
		return errGone
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return ErrInvalid
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return ErrBusy
	case http.StatusGatewayTimeout:
		return ErrTimeout
	}
	return nil
}

// passes reports whether the same request may be answered better a moment later.
func (e *APIError) passes() bool {
	switch e.Code {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return e.Code == http.StatusConflict && e.Reason == "Conflict"
}

// isQuota reports whether a text says that a quota is exhausted: Kubernetes has no
// reason of its own for that.
func isQuota(message string) bool { return strings.Contains(message, "exceeded quota") }

// status is the API's answer to what went wrong, and an event of a watch that
// broke.
type status struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`
}

// maxRetryAfter bounds what a server can ask us to wait.
const maxRetryAfter = 5 * time.Minute

// refusal is what an answer other than success says. body may be anything: a proxy
// answers with pages.
func refusal(op string, code int, header http.Header, body []byte) *APIError {
	e := &APIError{Op: op, Code: code}
	var s status
	if err := json.Unmarshal(body, &s); err == nil && s.Kind == "Status" {
		e.Reason, e.Message = plain(s.Reason), plain(s.Message)
		e.RetryAfter = time.Duration(min(max(s.Details.RetryAfterSeconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	} else {
		e.Message = plain(string(body[:min(len(body), maxText)]))
	}
	if n, err := strconv.Atoi(header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = min(time.Duration(min(n, int(maxRetryAfter/time.Second)))*time.Second, maxRetryAfter)
	}
	return e
}
