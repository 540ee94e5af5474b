package feed

import (
	"slices"
	"strings"
)

// MaxPatterns bounds the patterns of a filter.
const MaxPatterns = 64

// CheckTopic returns an *InvalidError unless name is a topic's name:
// [a-z0-9][a-z0-9._-]{0,127}.
func CheckTopic(name string) error {
	switch {
	case name == "":
		return &InvalidError{"topic", "it is empty", nil}
	case len(name) > MaxTopic:
		return &InvalidError{"topic", "it is longer than 128 characters", ErrTooLarge}
	case !alphanumeric(name[0]):
		return &InvalidError{"topic", "it begins with neither a lower-case letter nor a digit", nil}
	}
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return &InvalidError{"topic", "only lower-case letters, digits, dot, underscore and hyphen are allowed", nil}
		}
	}
	return nil
}

func alphanumeric(c byte) bool { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') }

// Filter selects topics. The zero Filter selects all.
type Filter struct {
	patterns string // sorted, joined by blanks: filters that select alike are equal
}

// ParseFilter returns a filter of topics, and of prefixes that end with an
// asterisk. None selects all. Errors: *InvalidError.
func ParseFilter(patterns ...string) (Filter, error) {
	if len(patterns) > MaxPatterns {
		return Filter{}, &InvalidError{"filter", "it has more than 64 patterns", ErrTooLarge}
	}
	for _, p := range patterns {
		if p == "*" {
			continue
		}
		if err := CheckTopic(strings.TrimSuffix(p, "*")); err != nil {
			return Filter{}, err
		}
	}
	if slices.Contains(patterns, "*") {
		return Filter{}, nil
	}
	kept := slices.Compact(slices.Sorted(slices.Values(patterns)))
	return Filter{strings.Join(kept, " ")}, nil
}

// All reports whether the filter selects every topic.
func (f Filter) All() bool { return f.patterns == "" }

// Match reports whether the filter selects a topic.
func (f Filter) Match(topic string) bool {
	if f.patterns == "" {
		return true
	}
	for p := range strings.SplitSeq(f.patterns, " ") {
		if prefix, ok := strings.CutSuffix(p, "*"); p == topic || (ok && strings.HasPrefix(topic, prefix)) {
			return true
		}
	}
	return false
}

// Patterns are those that the filter was made of, sorted, each once.
func (f Filter) Patterns() []string { return strings.Fields(f.patterns) }

// topics are those that an exact filter selects: one that is nothing but topics.
func (f Filter) topics() (topics []string, exact bool) {
	if f.All() || strings.Contains(f.patterns, "*") {
		return nil, false
	}
	return f.Patterns(), true
}
