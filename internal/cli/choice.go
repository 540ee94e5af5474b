package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// choice is a flag that takes one of a few words. Another one is a mistake on the
// command line, before the command has done anything.
type choice[T ~string] struct {
	value *T
	of    []T
}

// choiceVar defines a flag whose value is that of p, which is the default, or one of
// some words.
func choiceVar[T ~string](flags *pflag.FlagSet, p *T, name, usage string, of ...T) {
	flags.Var(&choice[T]{p, of}, name, usage)
}

// Set implements pflag.Value.
func (c *choice[T]) Set(text string) error {
	if err := oneOf(T(text), c.of); err != nil {
		return err
	}
	*c.value = T(text)
	return nil
}

// String implements pflag.Value.
func (c *choice[T]) String() string {
	if c.value == nil { // pflag asks a zero value for its default
		return ""
	}
	return string(*c.value)
}

// Type implements pflag.Value.
func (*choice[T]) Type() string { return "string" }

// oneOf checks that a word is one of those that there are, of which there are two at
// least.
func oneOf[T ~string](word T, of []T) error {
	if slices.Contains(of, word) {
		return nil
	}
	words := make([]string, len(of))
	for i, w := range of {
		words[i] = string(w)
	}
	last := len(words) - 1
	return fmt.Errorf("use %s or %s", strings.Join(words[:last], ", "), words[last])
}
