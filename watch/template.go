package watch

import (
	"net/url"
	"regexp"
	"strings"
)

// matchTemplate reports whether a URI is an expansion of an RFC 6570 template:
// simple {x} and form-query {?a,b} with any subset and order of the variables
// (W-046). A template with other operators matches nothing.
func matchTemplate(template, uri string) bool {
	path, query, _ := strings.Cut(template, "{?")
	names := strings.TrimSuffix(query, "}")
	if query != "" && (names == query || strings.ContainsAny(names, "{}")) {
		return false
	}
	uriPath, uriQuery, hasQuery := strings.Cut(uri, "?")
	if hasQuery && query == "" {
		return false
	}
	allowed := map[string]bool{}
	for _, name := range strings.Split(names, ",") {
		allowed[name] = true
	}
	values, err := url.ParseQuery(uriQuery)
	if err != nil {
		return false
	}
	for name := range values {
		if !allowed[name] {
			return false
		}
	}
	var pattern strings.Builder
	rest := path
	for {
		literal, after, found := strings.Cut(rest, "{")
		pattern.WriteString(regexp.QuoteMeta(literal))
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.ContainsAny(name[:1], "+#./;?&|!=,@") {
			return false
		}
		pattern.WriteString("[^/?#]*")
		rest = tail
	}
	ok, err := regexp.MatchString("^"+pattern.String()+"$", uriPath)
	return err == nil && ok
}
