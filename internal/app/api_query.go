package app

import (
	"fmt"
	"net/http"

	"github.com/ossicle/ossicle/internal/httpserver"
)

// apiQueries are the parameters that a request may have in its query, by the
// pattern of its route. The others have none.
func apiQueries(pattern string) []string {
	switch pattern {
	case "GET /v1/sessions/{id}/transcript":
		return []string{"after", "limit", "last"}
	case "GET /v1/inbox":
		return []string{"agent", "state", "source", "after", "limit"}
	case "GET " + sandboxesPath:
		return []string{"all"}
	case "GET " + sandboxesPath + "/{id}/tail":
		return []string{"job", "stream", "offset", "wait_ms"}
	}
	return nil
}

// checkQuery refuses a parameter that nobody here reads.
func checkQuery(r *http.Request) error {
	if err := httpserver.CheckQuery(r, apiQueries(r.Pattern)); err != nil {
		return &apiError{http.StatusBadRequest, err}
	}
	return nil
}

// truth reads a query's yes or no; empty is no.
func truth(name, text string) (bool, error) {
	switch text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, apiErrorf(http.StatusBadRequest, "%s=%s: use true or false", name, shown(text))
}

// shown is a name from outside as an error repeats it: quoted and bounded.
func shown(name string) string { return fmt.Sprintf("%.80q", name) }
