package httpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// API makes the routes of a JSON API, which read requests strictly and answer errors
// as problems.
type API struct {
	// MaxBody bounds a request, in bytes.
	MaxBody int64
	// Status is that of an error that is neither a StatusError nor a body that is too
	// large. Nil is 422 for all.
	Status func(error) int
}

// JSON answers what do returns as JSON, to whoever may ask; nil is everybody. The
// parameters of its query are there once each, and no others.
func (a *API) JSON(pattern string, may func(*http.Request) error, do func(*http.Request) (any, error), query ...string) Route {
	return a.Raw(pattern, may, func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(r)
		if err == nil {
			WriteJSON(w, http.StatusOK, v)
		}
		return err
	}, query...)
}

// Raw is JSON for what writes its answer itself; an error that it returns is answered,
// so it has written nothing then.
func (a *API) Raw(pattern string, may func(*http.Request) error, do func(http.ResponseWriter, *http.Request) error, query ...string) Route {
	return Route{Pattern: pattern, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, a.MaxBody)
		var err error
		if may != nil {
			err = may(r)
		}
		if err == nil {
			if err = CheckQuery(r, query); err != nil {
				err = &StatusError{http.StatusBadRequest, err}
			}
		}
		if err == nil {
			err = do(w, r)
		}
		if err != nil {
			a.Fail(w, err)
		}
	})}
}

// Fail answers an error.
func (a *API) Fail(w http.ResponseWriter, err error) {
	p := NewProblem(a.StatusOf(err), err.Error())
	if with, ok := errors.AsType[*OutputError](err); ok {
		p.Output = with.Output
	}
	writeProblem(w, p)
}

// StatusOf is the status that an error is answered with.
func (a *API) StatusOf(err error) int {
	var own *StatusError
	switch {
	case errors.As(err, &own):
		return own.Status
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge
	case a.Status != nil:
		return a.Status(err)
	}
	return http.StatusUnprocessableEntity
}

// OutputError is an error of an agent, with what it said itself.
type OutputError struct {
	Err    error
	Output []string // see Problem
}

// Error implements error.
func (e *OutputError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *OutputError) Unwrap() error { return e.Err }

// StatusError is an error with the HTTP status that answers it.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string { return e.Err.Error() }
func (e *StatusError) Unwrap() error { return e.Err }

// Errorf makes a StatusError.
func Errorf(status int, format string, args ...any) error {
	return &StatusError{status, fmt.Errorf(format, args...)}
}

// WriteJSON answers with a value, which nobody keeps.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client went away
}

// ReadJSON reads a request strictly: names by case, nothing unknown. No body is an
// empty object.
func ReadJSON(r *http.Request, v any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonv2.Unmarshal(body, v, jsonv2.RejectUnknownMembers(true)); err != nil {
		return Errorf(http.StatusBadRequest, "read request: %s", jsonx.Explain(err))
	}
	return nil
}

// QueryBool reads a yes or no of the query; none is no.
func QueryBool(r *http.Request, name string) (bool, error) {
	switch text := r.URL.Query().Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, Errorf(http.StatusBadRequest, "%s=%.80q: use true or false", name, text)
	}
}
