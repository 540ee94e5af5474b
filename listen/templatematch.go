package listen

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Regular expressions of Go match in linear time, whatever the pattern: that is
// why templates become such.

// Match reports whether the template expands to the URI, by the rules of
// [URITemplate], and with which values. Variables that are absent have none.
func (t *URITemplate) Match(uri string) (map[string]string, bool) {
	if len(uri) > maxURI {
		return nil, false
	}
	m := match{values: make(map[string]string, len(t.vars))}
	if t.query == nil {
		return m.result(m.pattern(t.head, uri))
	}
	rest, fragment := cutBefore(uri, '#')
	head, query := cutBefore(rest, '?')
	return m.result(m.pattern(t.head, head) && m.query(t.query, strings.TrimPrefix(query, "?")) && m.pattern(t.tail, fragment))
}

// cutBefore cuts s before the first mark.
func cutBefore(s string, mark byte) (before, from string) {
	if i := strings.IndexByte(s, mark); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// match collects the values of one match.
type match struct {
	values   map[string]string
	prefixes []prefixValue
}

// prefixValue is the value of {x:n}: the beginning of x, if x stands elsewhere.
type prefixValue struct{ name, value string }

func (m *match) result(ok bool) (map[string]string, bool) {
	if !ok {
		return nil, false
	}
	for _, p := range m.prefixes {
		whole, known := m.values[p.name]
		if known && !strings.HasPrefix(whole, p.value) {
			return nil, false
		}
		if !known {
			m.values[p.name] = p.value
		}
	}
	return m.values, true
}

func (m *match) pattern(p *pattern, s string) bool {
	at := p.re.FindStringSubmatchIndex(s)
	if at == nil {
		return false
	}
	for i, v := range p.vars {
		if from, to := at[2*i+2], at[2*i+3]; from >= 0 && !m.set(v, s[from:to]) {
			return false
		}
	}
	return true
}

// set notes the raw value of a variable and reports whether it fits.
func (m *match) set(v varSpec, raw string) bool {
	if v.operator == '/' && v.explode {
		if raw = strings.TrimPrefix(raw, "/"); raw == "" {
			return true // no segments: absent
		}
	}
	if v.operator == ';' {
		raw = strings.TrimPrefix(raw, "=")
	}
	value, err := url.PathUnescape(raw)
	if err != nil || !utf8.ValidString(value) {
		return false
	}
	if v.prefix > 0 {
		m.prefixes = append(m.prefixes, prefixValue{v.name, value})
		return utf8.RuneCountInString(value) <= v.prefix
	}
	old, twice := m.values[v.name]
	m.values[v.name] = value
	return !twice || old == value
}

// compilePattern makes a regular expression of tokens.
func compilePattern(tokens []token) (*pattern, error) {
	var p pattern
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for _, tok := range tokens {
		if len(tok.vars) == 0 {
			b.WriteString(regexp.QuoteMeta(tok.literal))
			continue
		}
		b.WriteString(expressionPattern(tok))
		p.vars = append(p.vars, tok.vars...)
	}
	b.WriteString(`\z`)
	var err error
	p.re, err = regexp.Compile(b.String())
	return &p, err
}

// expressionPattern is the pattern of one expression, with a group for each of its
// variables.
func expressionPattern(tok token) string {
	var b strings.Builder
	open := 0
	for i, v := range tok.vars {
		optional := i > 0 || tok.operator != 0 && tok.operator != '+'
		if optional {
			b.WriteString("(?:")
			open++
		}
		b.WriteString(varPattern(tok, i, v))
		// Named parameters may be absent each for itself; of values that only
		// their place tells apart, the last ones first.
		if optional && v.named() {
			b.WriteString(")?")
			open--
		}
	}
	return b.String() + strings.Repeat(")?", open)
}

// named reports whether the expansion writes the name of the variable.
func (v varSpec) named() bool {
	return v.operator == ';' || v.operator == '?' || v.operator == '&'
}

func varPattern(tok token, i int, v varSpec) string {
	name := regexp.QuoteMeta(v.name)
	several := len(tok.vars) > 1
	switch tok.operator {
	case '/':
		if v.explode {
			return `((?:/[^/?#]+)*)`
		}
		return `/([^/?#]+)`
	case '.':
		return `\.([^/?#` + pick(several, ".", "") + `]+)`
	case ';':
		return `;` + name + `((?:=[^;/?#]*)?)`
	case '?', '&':
		return `[?&]` + name + `=([^&#]*)`
	case '#':
		return pick(i == 0, "#", ",") + plusPattern(several)
	case '+':
		return pick(i == 0, "", ",") + plusPattern(several)
	default:
		return pick(i == 0, "", ",") + `([^/?#` + pick(several, ",", "") + `]+)`
	}
}

func plusPattern(several bool) string {
	if several {
		return `([^,]+)`
	}
	return `(.+)`
}

// queryPattern is the query of a template: parameters in any order.
type queryPattern struct {
	required []requiredParam
	optional []varSpec
}

// requiredParam is a parameter that the template spells out: name=value, where
// the value may hold expressions.
type requiredParam struct {
	name  string
	bare  bool // without "="
	value *pattern
}

// compileQuery reads the tokens from "?" on as parameters. It returns nil for a
// query that is not made of parameters with known names.
func compileQuery(tokens []token) (*queryPattern, error) {
	var q queryPattern
	var param []token // of the parameter that is being collected
	flush := func() (bool, error) {
		p, ok, err := compileParam(param)
		if p != nil {
			q.required = append(q.required, *p)
		}
		param = nil
		return ok, err
	}
	for i, tok := range tokens {
		if tok.operator == '?' || tok.operator == '&' {
			if ok, err := flush(); !ok || err != nil {
				return nil, err
			}
			q.optional = append(q.optional, tok.vars...)
			continue
		}
		if len(tok.vars) > 0 {
			param = append(param, tok)
			continue
		}
		literal := tok.literal
		if i == 0 {
			literal = literal[1:] // the "?"
		}
		for j, part := range strings.Split(literal, "&") {
			if j > 0 {
				if ok, err := flush(); !ok || err != nil {
					return nil, err
				}
			}
			if part != "" {
				param = append(param, token{literal: part})
			}
		}
	}
	if ok, err := flush(); !ok || err != nil {
		return nil, err
	}
	return &q, nil
}

// compileParam makes a parameter of its tokens. It reports false if its name is
// not a literal.
func compileParam(tokens []token) (p *requiredParam, ok bool, err error) {
	if len(tokens) == 0 {
		return nil, true, nil
	}
	name, value, found := strings.Cut(tokens[0].literal, "=")
	if len(tokens[0].vars) > 0 || !found && len(tokens) > 1 {
		return nil, false, nil
	}
	rest := tokens[1:]
	if value != "" {
		rest = append([]token{{literal: value}}, rest...)
	}
	compiled, err := compilePattern(rest)
	return &requiredParam{name: name, bare: !found, value: compiled}, true, err
}

func (m *match) query(q *queryPattern, query string) bool {
	missing := slices.Clone(q.required)
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		if i := slices.IndexFunc(missing, func(r requiredParam) bool { return r.matches(part) }); i >= 0 {
			_, value, _ := strings.Cut(part, "=")
			if !m.pattern(missing[i].value, value) {
				return false
			}
			missing = slices.Delete(missing, i, i+1)
			continue
		}
		if !m.optional(q, part, seen) {
			return false
		}
	}
	return len(missing) == 0
}

func (r requiredParam) matches(part string) bool {
	name, value, found := strings.Cut(part, "=")
	return name == r.name && found != r.bare && r.value.re.MatchString(value)
}

// optional takes a parameter of {?…} or {&…}.
func (m *match) optional(q *queryPattern, part string, seen map[string]bool) bool {
	raw, value, _ := strings.Cut(part, "=")
	name, err := url.PathUnescape(raw)
	i := slices.IndexFunc(q.optional, func(v varSpec) bool { return v.name == name || v.name == raw })
	if err != nil || i < 0 {
		return false
	}
	v := q.optional[i]
	if !seen[v.name] {
		seen[v.name] = true
		return m.set(v, value)
	}
	if !v.explode {
		return false
	}
	decoded, err := url.PathUnescape(value)
	m.values[v.name] += v.separator() + decoded
	return err == nil && utf8.ValidString(decoded)
}

func pick(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
