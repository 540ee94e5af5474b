package kubernetes

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// The rights in the documentation are those that the driver asks for: more would be
// given away, with less it would not work.
func TestDocumentedRole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/channel.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "kind: Role\n")
	role, _, closed := strings.Cut(rest, "---")
	if !ok || !closed {
		t.Fatal("there is no Role in docs/channel.md")
	}
	var got struct {
		Rules []struct {
			Groups    []string `yaml:"apiGroups"`
			Resources []string `yaml:"resources"`
			Verbs     []string `yaml:"verbs"`
		} `yaml:"rules"`
	}
	if err := yaml.Unmarshal([]byte(role), &got); err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, r := range got.Rules {
		have = append(have, fmt.Sprint(r.Groups, r.Resources, r.Verbs))
	}
	for _, r := range rules {
		want = append(want, fmt.Sprint([]string{r.group}, []string{r.resource}, r.verbs))
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	for reason := range meanings {
		if !strings.Contains(string(text), "`"+string(reason)+"`") {
			t.Errorf("%s is not in docs/channel.md", reason)
		}
	}
}

// Every request that the driver makes is allowed by its rights, and every right is
// used: counted in the whole life of two sandboxes.
func TestRightsAreWhatIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	bubble(t, func(t *testing.T, r *rig) {
		r.create(t, "a")
		p := r.api.get("networkpolicies", policyName)
		p["spec"] = map[string]any{"podSelector": map[string]any{}}
		r.api.add("networkpolicies", p)
		lost := false
		r.api.after = func(_ http.ResponseWriter, what string) bool {
			if what == "POST jobs" && !lost {
				lost = true
				panic(http.ErrAbortHandler)
			}
			return false
		}
		r.create(t, "b")
		if err := r.driver.Create(t.Context(), spec("b")); err == nil {
			t.Error("a second one was made")
		}
		if err := r.driver.Kill(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		r.api.mu.Lock()
		defer r.api.mu.Unlock()
		for _, what := range r.api.rights {
			used[what] = true
		}
	})
	for _, r := range rules {
		for _, verb := range r.verbs {
			if !used[verb+" "+r.resource] {
				t.Errorf("the right to %s %s is not used", verb, r.resource)
			}
			delete(used, verb+" "+r.resource)
		}
	}
	for what := range used {
		t.Errorf("%s is done and not among the rights", what)
	}
}
