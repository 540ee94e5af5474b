package kubernetes

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openAPIVersion is of what the extract was made; the description does not say it.
const openAPIVersion = "v1.37.2"

var openAPIDir = flag.String("openapi", "", "make testdata/openapi.json anew of this directory: api/openapi-spec/v3 of Kubernetes' repository")

// document is a part of what an API server says of its API.
type document struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]any `json:"schemas"`
	} `json:"components"`
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

// TestExtractOpenAPI takes from Kubernetes' description what we use of its API. It
// does nothing unless it is told where that is.
func TestExtractOpenAPI(t *testing.T) {
	if *openAPIDir == "" {
		t.Skip("run it with -openapi to make the extract anew")
	}
	out := map[string]any{"origin": "Kubernetes " + openAPIVersion + ", api/openapi-spec/v3, Apache License 2.0; an extract without descriptions"}
	paths, schemas, all := map[string]any{}, map[string]any{}, map[string]any{}
	need := []string{"io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Event"}
	for resource, api := range apis {
		name := strings.ReplaceAll(strings.Trim(api, "/"), "/", "__") + "_openapi.json"
		b, err := os.ReadFile(filepath.Join(*openAPIDir, name))
		if err != nil {
			t.Fatal(err)
		}
		var d document
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, d.Components.Schemas)
		for path, item := range d.Paths {
			short := strings.Replace(strings.TrimSuffix(path, "/{name}"), "/namespaces/{namespace}", "", 1)
			if short != api+"/"+resource || !strings.Contains(path, "{namespace}") && resource != "selfsubjectaccessreviews" {
				continue
			}
			operations, bodies := extract(t, item)
			paths[path] = operations
			need = append(need, bodies...)
		}
	}
	for len(need) > 0 {
		name := need[0]
		need = need[1:]
		if schemas[name] == nil {
			schemas[name] = bare(all[name], false)
			need = append(need, references(all[name])...)
		}
	}
	out["paths"], out["schemas"] = paths, schemas
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/openapi.json", append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// extract takes the operations of a path: their parameters, and what they take.
func extract(t *testing.T, item map[string]json.RawMessage) (operations map[string]operation, bodies []string) {
	t.Helper()
	into := func(raw json.RawMessage, v any) {
		if raw != nil {
			if err := json.Unmarshal(raw, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	var common []parameter
	into(item["parameters"], &common)
	operations = map[string]operation{}
	for _, method := range []string{"get", "post", "put", "patch", "delete"} {
		if item[method] == nil {
			continue
		}
		var o struct {
			Parameters  []parameter `json:"parameters"`
			RequestBody struct {
				Content map[string]struct {
					Schema schema `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		}
		into(item[method], &o)
		var got operation
		for _, p := range append(o.Parameters, common...) {
			if p.In == "query" {
				got.Query = append(got.Query, p.Name)
			}
		}
		slices.Sort(got.Query)
		for kind, c := range o.RequestBody.Content {
			got.Types = append(got.Types, kind)
			if c.Schema.Ref != "" {
				got.Body = c.Schema.Ref[strings.LastIndexByte(c.Schema.Ref, '/')+1:]
				bodies = append(bodies, got.Body)
			}
		}
		slices.Sort(got.Types)
		operations[method] = got
	}
	return operations, bodies
}

// bare is a schema without what is for people and for merging. The names of
// properties are no keywords.
func bare(v any, names bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, sub := range v {
			if names || k != "description" && !strings.HasPrefix(k, "x-") {
				out[k] = bare(sub, !names && k == "properties")
			}
		}
		return out
	case []any:
		out := []any{}
		for _, sub := range v {
			out = append(out, bare(sub, false))
		}
		return out
	}
	return v
}

func references(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			if ref, ok := sub.(string); ok && k == "$ref" {
				names = append(names, ref[strings.LastIndexByte(ref, '/')+1:])
			}
			names = append(names, references(sub)...)
		}
	case []any:
		for _, sub := range v {
			names = append(names, references(sub)...)
		}
	}
	return names
}
