package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// openAPI is the part of Kubernetes' own description of its API that we use: what
// may be asked, and what the objects may hold.
type openAPI struct {
	Origin  string                          `json:"origin"`
	Paths   map[string]map[string]operation `json:"paths"`
	Schemas map[string]*schema              `json:"schemas"`
}

type operation struct {
	Query []string `json:"query,omitempty"`
	Body  string   `json:"body,omitempty"`
	Types []string `json:"types,omitempty"`
}

type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Required             []string           `json:"required"`
	AllOf                []*schema          `json:"allOf"`
	OneOf                []*schema          `json:"oneOf"`
}

var loadAPI = sync.OnceValues(func() (*openAPI, error) {
	b, err := os.ReadFile("testdata/openapi.json")
	if err != nil {
		return nil, err
	}
	var a openAPI
	return &a, json.Unmarshal(b, &a)
})

// validate returns everything in which a value is not as the schema says. An
// unknown field is one, as the API server has it when it is asked to be strict.
func (a *openAPI) validate(name string, v any) []string {
	s := a.Schemas[name]
	if s == nil {
		return []string{"no schema " + name}
	}
	return a.check("", s, v)
}

func (a *openAPI) check(at string, s *schema, v any) (bad []string) {
	say := func(format string, args ...any) { bad = append(bad, at+": "+fmt.Sprintf(format, args...)) }
	if s.Ref != "" {
		return a.check(at, a.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]], v)
	}
	for _, one := range s.AllOf {
		bad = append(bad, a.check(at, one, v)...)
	}
	if len(s.OneOf) > 0 {
		fits := 0
		for _, one := range s.OneOf {
			if len(a.check(at, one, v)) == 0 {
				fits++
			}
		}
		if fits != 1 {
			say("%v fits %d of %d forms", v, fits, len(s.OneOf))
		}
	}
	switch s.Type {
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			say("%T is no object", v)
			return bad
		}
		for _, name := range s.Required {
			if _, ok := m[name]; !ok {
				say("%s is missing", name)
			}
		}
		for name, value := range m {
			switch sub := s.Properties[name]; {
			case sub != nil:
				bad = append(bad, a.check(at+"."+name, sub, value)...)
			case s.AdditionalProperties != nil:
				bad = append(bad, a.check(at+"."+name, s.AdditionalProperties, value)...)
			case len(s.Properties) > 0:
				say("there is no field %s", name)
			}
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			say("%T is no array", v)
		}
		for i, item := range list {
			bad = append(bad, a.check(fmt.Sprintf("%s[%d]", at, i), s.Items, item)...)
		}
	case "string":
		if _, ok := v.(string); !ok {
			say("%T is no string", v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			say("%T is no boolean", v)
		}
	case "number", "integer":
		n, ok := v.(float64)
		if !ok || s.Type == "integer" && n != math.Trunc(n) || s.Format == "int32" && math.Abs(n) > math.MaxInt32 {
			say("%v is no %s %s", v, s.Type, s.Format)
		}
	}
	return bad
}

// operation finds what a request asks for; a path that the API does not have is
// not found.
func (a *openAPI) operation(method, path string) (operation, bool) {
	parts := strings.Split(path, "/")
	for pattern, methods := range a.Paths {
		want := strings.Split(pattern, "/")
		if len(want) != len(parts) {
			continue
		}
		same := true
		for i := range want {
			same = same && (want[i] == parts[i] || strings.HasPrefix(want[i], "{") && parts[i] != "")
		}
		if same {
			op, ok := methods[strings.ToLower(method)]
			return op, ok
		}
	}
	return operation{}, false
}

// The validator itself must be able to say no.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	api, err := loadAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, object, want string }{
		{"io.k8s.api.batch.v1.Job", `{"spec":{"template":{},"backofflimit":0}}`, ".spec: there is no field backofflimit"},
		{"io.k8s.api.batch.v1.Job", `{"spec":{}}`, ".spec: template is missing"},
		{"io.k8s.api.batch.v1.Job", `{"spec":{"template":{},"completions":1.5}}`, ".spec.completions: 1.5 is no integer int32"},
		{"io.k8s.api.batch.v1.Job", `{"spec":{"template":{},"completions":4294967296}}`, ".spec.completions: 4.294967296e+09 is no integer int32"},
		{"io.k8s.api.batch.v1.Job", `{"spec":{"template":{"spec":{"containers":[{}]}}}}`, ".spec.template.spec.containers[0]: name is missing"},
		{"io.k8s.api.batch.v1.Job", `{"spec":{"template":{"spec":{"containers":[{"name":"w","resources":{"limits":{"cpu":true}}}]}}}}`, ".spec.template.spec.containers[0].resources.limits.cpu: true fits 0 of 2 forms"},
		{"io.k8s.api.batch.v1.Job", `{"metadata":{"labels":{"a":1}}}`, ".metadata.labels.a: float64 is no string"},
		{"io.k8s.api.core.v1.Secret", `{"immutable":"yes"}`, ".immutable: string is no boolean"},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.object), &v); err != nil {
			t.Fatal(err)
		}
		if bad := api.validate(c.name, v); !slices.Contains(bad, c.want) {
			t.Errorf("%s: %q", c.object, bad)
		}
	}
}
