package listen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

// Bounds of a template: with those of a URI they bound the time of a match.
const (
	maxTemplate     = 4 << 10 // bytes
	maxTemplateVars = 64
)

// URITemplate is a template of RFC 6570 that matches URIs as well as it expands
// to them. It is immutable, and safe for concurrent use.
//
// Expanding follows the RFC to its level 4. Matching, which the RFC leaves open,
// follows these rules:
//   - The value of a variable is percent-decoded; "+" is no space. A value that
//     does not decode to UTF-8 is no match.
//   - {x} takes one or more characters but "/", "?" and "#". Those that an
//     expansion would encode are taken as they are, so that a person may write
//     root:app for root%3Aapp. {+x} takes any.
//   - {/x}, {.x}, {;x} and {#x} may be absent, of several the last ones first.
//     {/x*} takes any number of segments; the value joins them with "/".
//   - The parameters of {?a,b} and {&c} may each be absent and stand in any
//     order, also among those that the template spells out, which must be there.
//     A parameter that the template does not know is no match, and neither is
//     one that is there twice, but for {?x*}, whose value joins them with ",".
//     The keys of an exploded associative array are unknown parameters.
//   - A variable that stands in two places has one value.
//   - Where two ways to match remain, earlier variables take more.
//
// The time of a match is linear in the length of the URI; a URI over 8 KiB does
// not match.
type URITemplate struct {
	raw    string
	tokens []token
	vars   []varSpec

	head  *pattern // up to the query; all of it where there is none
	query *queryPattern
	tail  *pattern // the fragment behind the query
}

// varSpec is a variable as an expression names it.
type varSpec struct {
	name     string
	operator byte // 0 for a simple one
	explode  bool
	prefix   int // characters at most; 0 is no bound
}

// token is a piece of a template: a literal, or an expression.
type token struct {
	literal  string
	operator byte
	vars     []varSpec // not empty for an expression
}

// ParseTemplate parses a template.
func ParseTemplate(template string) (*URITemplate, error) {
	if len(template) > maxTemplate {
		return nil, fmt.Errorf("parse URI template: longer than %d bytes", maxTemplate)
	}
	// The module checks the grammar; it neither matches query variables in any
	// order (known fault B-062) nor expands characters beyond ASCII as UTF-8.
	if _, err := uritemplate.New(template); err != nil {
		return nil, fmt.Errorf("parse URI template %q: %w", template, err)
	}
	t := &URITemplate{raw: template, tokens: tokenize(template)}
	for _, tok := range t.tokens {
		t.vars = append(t.vars, tok.vars...)
	}
	if len(t.vars) > maxTemplateVars {
		return nil, fmt.Errorf("parse URI template %q: more than %d variables", template, maxTemplateVars)
	}
	if err := t.compile(t.tokens); err != nil {
		return nil, fmt.Errorf("parse URI template %q: %w", template, err)
	}
	return t, nil
}

func (t *URITemplate) compile(tokens []token) (err error) {
	head, query, tail := splitTokens(tokens)
	if query != nil {
		if t.query, err = compileQuery(query); err != nil {
			return err
		}
		if t.query == nil { // of a shape that has no pairs: matched in its order
			head = tokens
		} else if t.tail, err = compilePattern(tail); err != nil {
			return err
		}
	}
	t.head, err = compilePattern(head)
	return err
}

// String returns the template's text.
func (t *URITemplate) String() string { return t.raw }

// Variables returns the names of the variables, each once, in the order of their
// first places.
func (t *URITemplate) Variables() []string {
	var names []string
	for _, v := range t.vars {
		if !slices.Contains(names, v.name) {
			names = append(names, v.name)
		}
	}
	return names
}

// separator joins the values of an exploded variable.
func (v varSpec) separator() string {
	if v.operator == '/' {
		return "/"
	}
	return ","
}

// tokenize splits a template that is known to be valid.
func tokenize(template string) []token {
	var tokens []token
	for template != "" {
		literal, rest, found := strings.Cut(template, "{")
		if literal != "" {
			tokens = append(tokens, token{literal: literal})
		}
		if !found {
			break
		}
		var body string
		body, template, _ = strings.Cut(rest, "}")
		tokens = append(tokens, parseExpression(body))
	}
	return tokens
}

func parseExpression(body string) token {
	var tok token
	if strings.IndexByte("+#./;?&", body[0]) >= 0 {
		tok.operator, body = body[0], body[1:]
	}
	for spec := range strings.SplitSeq(body, ",") {
		v := varSpec{name: spec, operator: tok.operator}
		if name, ok := strings.CutSuffix(spec, "*"); ok {
			v.name, v.explode = name, true
		} else if name, length, ok := strings.Cut(spec, ":"); ok {
			v.name = name
			for _, c := range length {
				v.prefix = v.prefix*10 + int(c-'0') // at most 9999 in a valid template
			}
		}
		tok.vars = append(tok.vars, v)
	}
	return tok
}

// splitTokens cuts a template before its query and before the fragment behind
// it. Without a query everything is head, and query is nil.
func splitTokens(tokens []token) (head, query, tail []token) {
	head, rest := cutTokens(tokens, '?')
	if rest == nil {
		return head, nil, nil
	}
	query, tail = cutTokens(rest, '#')
	return head, query, tail
}

// cutTokens cuts before the first mark, be it in a literal or as an operator. The
// second part is nil if there is none.
func cutTokens(tokens []token, mark byte) (before, from []token) {
	for i, tok := range tokens {
		if tok.operator == mark {
			return tokens[:i:i], tokens[i:]
		}
		if at := strings.IndexByte(tok.literal, mark); at >= 0 {
			before = append(tokens[:i:i], token{literal: tok.literal[:at]})
			return before, append([]token{{literal: tok.literal[at:]}}, tokens[i+1:]...)
		}
	}
	return tokens, nil
}

// pattern is a part of a template as a regular expression whose groups are vars.
type pattern struct {
	re   *regexp.Regexp
	vars []varSpec
}
