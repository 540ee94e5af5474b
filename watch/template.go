package watch

import "github.com/ossicle/ossicle/listen"

// matchTemplate reports whether a URI is an expansion of an RFC 6570 template
// (W-046). A template that cannot be parsed matches nothing.
func matchTemplate(template, uri string) bool {
	t, err := listen.ParseTemplate(template)
	if err != nil {
		return false
	}
	_, ok := t.Match(uri)
	return ok
}
