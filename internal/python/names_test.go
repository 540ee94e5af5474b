package python_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
)

// N-5: names become identifiers, and what two have is prefixed by its server.
func TestToolNames(t *testing.T) {
	t.Parallel()
	got := python.ToolNames([]python.ToolID{
		{"a", "get-card"}, {"a", "list"}, {"a", "same"}, {"b", "same"}, {"b", "class"}, {"b", "9lives"}, {"b", ""}, {"c", "b_same"}, {"c", "über"},
	})
	want := []string{"get_card", "a_list", "a_same", "b_same", "class_", "_9lives", "_", "c_b_same", "_ber"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
