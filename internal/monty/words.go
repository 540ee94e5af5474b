package monty

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxWords bounds the words that a scope remembers. A scope with more is not
// rebuilt, and may list too few names.
const maxWords = 20_000

// wordSet is every word of the programs of a scope that could be a variable:
// those in comments and texts included, so that none is missed. It is immutable.
type wordSet struct {
	set  map[string]struct{}
	full bool // some are missing
}

// with returns the set with the words of another program.
func (s *wordSet) with(source string) *wordSet {
	var more map[string]struct{}
	for word := range strings.FieldsFuncSeq(source, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if _, ok := s.set[word]; ok || !identifier(word) {
			continue
		}
		if more == nil {
			more = map[string]struct{}{}
		}
		more[word] = struct{}{}
	}
	if more == nil {
		return s
	}
	if len(s.set)+len(more) > maxWords {
		return &wordSet{set: s.set, full: true}
	}
	maps.Copy(more, s.set)
	return &wordSet{set: more, full: s.full}
}

func (s *wordSet) sorted() []string { return slices.Sorted(maps.Keys(s.set)) }

var (
	definition = regexp.MustCompile(`(?m)^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)`)
	named      = regexp.MustCompile(`(?m)^(\w+)[ \t]*=[ \t]*lambda\b`)
	importing  = regexp.MustCompile(`(?m)^(?:import|from)[ \t].*$`)
	word       = regexp.MustCompile(`\w+`)
)

// definers are the names that a program defines anew each time it runs, as
// functions, classes or modules: by statements at the left edge. A text of
// several lines may have such a line within it, so with one nothing is certain.
func definers(source string) map[string]bool {
	names := map[string]bool{}
	if strings.Contains(source, `"""`) || strings.Contains(source, `'''`) || strings.Contains(source, "\\\n") {
		return names
	}
	for _, re := range []*regexp.Regexp{definition, named} {
		for _, m := range re.FindAllStringSubmatch(source, -1) {
			names[m[1]] = true
		}
	}
	for _, line := range importing.FindAllString(source, -1) {
		for _, w := range word.FindAllString(line, -1) {
			names[w] = true
		}
	}
	return names
}
