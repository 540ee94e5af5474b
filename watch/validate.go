package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// StartRequest asks for a watch.
type StartRequest struct {
	Name    string `json:"name"`
	URI     string `json:"uri"`
	OnEvent string `json:"on_event,omitempty"` // Python source, or empty for default lines
}

// functionRepr is what a function object becomes on its way out of a sandbox
// (W-110): <function fmt at 0x7f…>, <bound method …>, <class 'x'>, <coroutine …>.
var functionRepr = regexp.MustCompile(`^<(async |built-in |bound |cyfunction |unbound )?(function|method|builtin_function_or_method|class|coroutine|lambda|object|generator|module|external_future|\S+ object)\b.*>$`)

// check validates what can be known without asking anyone (W-068, W-110).
func (r *StartRequest) check() error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	if err := checkURI(r.URI); err != nil {
		return err
	}
	source := strings.TrimSpace(r.OnEvent)
	switch {
	case source == "":
		r.OnEvent = ""
	case len(r.OnEvent) > MaxSource:
		return &ArgumentError{"on_event", fmt.Sprintf("the source has %d bytes", len(r.OnEvent)), fmt.Sprintf("write at most %d", MaxSource)}
	case !utf8.ValidString(r.OnEvent) || strings.ContainsRune(r.OnEvent, 0):
		return &ArgumentError{"on_event", "the source is not UTF-8 text", "pass Python source text in UTF-8"}
	case functionRepr.MatchString(source):
		return notSource(source)
	}
	return nil
}

func notSource(shown string) error {
	return &ArgumentError{
		"on_event", "it is a function or another object, not source text: " + cut(neutral(shown), 80),
		`pass the Python source as a string, for instance on_event='event["type"]', whose last expression is the line or None`,
	}
}

func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return &ArgumentError{"name", "it is empty", `pass a short name for the watch, for instance name="cm"`}
	case len(name) > MaxName:
		return &ArgumentError{"name", fmt.Sprintf("it has %d bytes", len(name)), fmt.Sprintf("use at most %d", MaxName)}
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return &ArgumentError{"name", fmt.Sprintf("it has characters that cannot be shown: %q", name), "use letters, digits, '-' and '_'"}
	}
	return nil
}

var templateExpression = regexp.MustCompile(`\{[^{}]*\}`)

func checkURI(uri string) error {
	switch {
	case strings.TrimSpace(uri) == "":
		return &ArgumentError{"uri", "it is empty", "pass a URI that list_resources() shows"}
	case len(uri) > MaxURI:
		return &ArgumentError{"uri", fmt.Sprintf("it has %d bytes", len(uri)), fmt.Sprintf("use at most %d", MaxURI)}
	case templateExpression.MatchString(uri):
		return &ArgumentError{
			"uri", fmt.Sprintf("%q is a template: %s is not filled in", uri, templateExpression.FindString(uri)),
			"replace each {...} by a value; the entry's example in list_resources() shows how",
		}
	}
	u, err := url.Parse(uri)
	if err != nil {
		return &ArgumentError{"uri", fmt.Sprintf("%q cannot be parsed: %v", uri, err), "pass a URI that list_resources() shows, percent-encoded where needed"}
	}
	if u.Scheme == "" || strings.ContainsFunc(uri, unicode.IsSpace) {
		return &ArgumentError{"uri", fmt.Sprintf("%q is not an absolute URI", uri), "write scheme://..., as list_resources() shows it"}
	}
	return nil
}

// samples are the events of a dry run. They are rich, because what fails on a
// missing key hides what would fail behind it (W-111, W-112).
func samples(name, uri string) []json.RawMessage {
	var objects []json.RawMessage
	for _, e := range sampleEvents() {
		objects = append(objects, e.Object(name, uri))
	}
	return objects
}

func sampleEvents() []Event {
	object := json.RawMessage(`{"apiVersion":"v1","kind":"Sample","metadata":{"name":"sample","namespace":"default","uid":"0",` +
		`"resourceVersion":"2","labels":{},"annotations":{}},"spec":{},"status":{"phase":"Ready"},"data":{},"id":"sample","name":"sample"}`)
	old := json.RawMessage(strings.Replace(string(object), "Ready", "Pending", 1))
	var events []Event
	for _, kind := range []string{TypeAdded, TypeModified, TypeDeleted} {
		e := Event{Type: kind, Key: "sample", Item: object, state: true}
		if kind != TypeDeleted {
			e.New = object
		}
		e.Fields = json.RawMessage(`{"seq":1,"object":` + string(object) + `,"message":"sample"}`)
		if kind == TypeModified {
			e.Old = old
			e.compare(old, object) // ["status.phase"]
		}
		events = append(events, e)
	}
	return events
}

// dryRun runs a filter on sample events in a scope that is thrown away, with
// tools that answer null, and returns a *FilterError for what no event can cure
// (W-111, W-112, WA-21).
func (m *Manager) dryRun(ctx context.Context, req StartRequest, c *catalogue) error {
	scope, err := m.engine.NewScope(python.ScopeOptions{
		Name: filterFile, Functions: c.names(),
		Call: func(context.Context, python.Call) (json.RawMessage, error) { return json.RawMessage("null"), nil },
	})
	if err != nil {
		return fmt.Errorf("check on_event: make scope: %w", err)
	}
	defer scope.Close()
	for _, event := range samples(req.Name, req.URI) {
		_, err := scope.Run(ctx, req.OnEvent, map[string]json.RawMessage{"event": event},
			python.Limits{Time: m.limits.FilterTime, Calls: m.limits.FilterCalls})
		if err := m.final(ctx, err, c); err != nil {
			return err
		}
	}
	// Last, for a program that does not even compile has no names yet.
	return m.staticCheck(ctx, req, c)
}

// final keeps of the errors of a run those that make a filter unusable.
func (m *Manager) final(ctx context.Context, err error, c *catalogue) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("check on_event: %w", ctx.Err())
	}
	if limit, ok := errors.AsType[*python.LimitError](err); ok {
		return &FilterError{
			Problem: cut(neutral(limit.Limit+" limit: "+limit.Text), maxErrorRunes),
			Hint:    "the program exceeds it on a sample event", Err: err, Temporary: limit.Limit == "time" || limit.Limit == "crash",
		}
	}
	failure, ok := errors.AsType[*python.Error](err)
	if !ok {
		return fmt.Errorf("check on_event: %w", err)
	}
	if !failure.Static() {
		return nil
	}
	return filterError(failure, c)
}

func filterError(failure *python.Error, c *catalogue) *FilterError {
	problem := failure.Error()
	if failure.SourceLine != "" {
		problem += ": " + strings.TrimSpace(failure.SourceLine)
	}
	hint := c.hint(failure)
	return &FilterError{Problem: cut(neutral(problem), maxErrorRunes), Hint: hint, Err: failure, Temporary: hint != "" && len(c.silent) > 0}
}

// staticCheck finds unknown names in branches that no sample takes, if the
// engine has that power.
func (m *Manager) staticCheck(ctx context.Context, req StartRequest, c *catalogue) error {
	checker, ok := m.engine.(python.Checker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.limits.ReadTime)
	defer cancel()
	err := checker.Check(ctx, req.OnEvent, append(c.names(), "event"))
	if failure, ok := errors.AsType[*python.Error](err); ok {
		return filterError(failure, c)
	}
	if err != nil {
		m.log.LogAttrs(ctx, levelDetail, "watch.check_skipped", logattr.Watch(req.Name), logattr.Err(err))
	}
	return nil
}
