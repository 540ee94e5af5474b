package watch

import (
	"sort"
	"strings"
	"unicode"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// changeDepth is how many names a path of Changed has at most; a difference
// that lies deeper is reported as its prefix of that length (W-073, WA-13).
const changeDepth = 3

// rootPath is the path of a value that is not an object on both sides: the
// value itself has changed, so that no name leads to the difference.
const rootPath = "."

// ignoredPaths change with every write and say nothing (W-074).
var ignoredPaths = map[string]bool{
	"metadata.resourceVersion": true,
	"metadata.generation":      true,
	"metadata.managedFields":   true,
}

// change is one path that differs. A side that has no such path is nil.
type change struct {
	path     string
	old, new *jsonx.Value
}

// changesBetween lists what differs between two values, sorted by path. base are
// the names that lead to the values from the object that ignoredPaths speak of.
func changesBetween(old, new jsonx.Value, base []string) []change {
	c := comparer{base: base, changes: []change{}}
	c.values(&old, &new, nil)
	sort.Slice(c.changes, func(i, j int) bool { return c.changes[i].path < c.changes[j].path })
	return c.changes
}

type comparer struct {
	base    []string
	changes []change
}

func (c *comparer) values(old, new *jsonx.Value, path []string) {
	objects := old != nil && new != nil && old.Kind() == jsonx.Object && new.Kind() == jsonx.Object
	if !objects || len(path) == changeDepth {
		if old == nil || new == nil || !jsonx.Equal(*old, *new) {
			c.changes = append(c.changes, change{pathText(path), old, new})
		}
		return
	}
	was := make(map[string]*jsonx.Value, len(old.Members()))
	for i := range old.Members() {
		m := &old.Members()[i]
		was[m.Name] = &m.Value
	}
	for i := range new.Members() {
		m := &new.Members()[i]
		c.member(was[m.Name], &m.Value, path, m.Name)
		delete(was, m.Name)
	}
	for name, value := range was {
		c.member(value, nil, path, name)
	}
}

func (c *comparer) member(old, new *jsonx.Value, path []string, name string) {
	path = append(path[:len(path):len(path)], name)
	if full := len(c.base) + len(path); full == 2 && ignoredPaths[strings.Join(append(c.base[:len(c.base):len(c.base)], path...), ".")] {
		return
	}
	c.values(old, new, path)
}

// pathText joins names with dots. A name that would make the path ambiguous is
// quoted in brackets: metadata.labels["app.kubernetes.io/name"].
func pathText(path []string) string {
	if len(path) == 0 {
		return rootPath
	}
	var b strings.Builder
	for i, name := range path {
		switch {
		case !plainName(name):
			b.WriteByte('[')
			b.Write(jsonx.AppendString(nil, name))
			b.WriteByte(']')
		case i > 0:
			b.WriteByte('.')
			b.WriteString(name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

func plainName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune(`.[]"\`, r) || unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	})
}
