package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// CheckQuery reads the query of a request strictly, and says what is wrong with it:
// a parameter that is spelt wrongly would otherwise answer another question than was
// asked. Those of once may be there once, those of many more often.
func CheckQuery(r *http.Request, once []string, many ...string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return errors.New("read query: it is not well formed; escape what stands in it")
	}
	for _, name := range once {
		if n := len(values[name]); n > 1 {
			return fmt.Errorf("read query: %s is there %d times; give it once", name, n)
		}
	}
	known := slices.Concat(once, many)
	for name := range values {
		if slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return fmt.Errorf("read query: there is no parameter %.80q; there are none here", name)
		}
		return fmt.Errorf("read query: there is no parameter %.80q; there are %s", name, strings.Join(known, ", "))
	}
	return nil
}
