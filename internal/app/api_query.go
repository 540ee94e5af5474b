package app

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

// checkQuery refuses what nobody here reads: a parameter that is spelt wrongly
// would otherwise answer another question than was asked.
func checkQuery(r *http.Request) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return apiErrorf(http.StatusBadRequest, "read query: it is not well formed; escape what stands in it")
	}
	known := apiQueries(r.Pattern)
	for name, all := range values {
		if slices.Contains(known, name) {
			if len(all) > 1 {
				return apiErrorf(http.StatusBadRequest, "read query: %s is there %d times; give it once", name, len(all))
			}
			continue
		}
		there := "there are none here"
		if len(known) > 0 {
			there = "there are " + strings.Join(known, ", ")
		}
		return apiErrorf(http.StatusBadRequest, "read query: there is no parameter %.80q; %s", name, there)
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
