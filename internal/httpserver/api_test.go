package httpserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAPI(t *testing.T) {
	t.Parallel()
	missing, other := errors.New("there is none"), errors.New("other")
	api := &API{MaxBody: 64, Status: func(err error) int {
		if errors.Is(err, missing) {
			return http.StatusNotFound
		}
		return http.StatusTeapot
	}}
	mux := http.NewServeMux()
	for _, route := range []Route{
		api.JSON("POST /echo", nil, func(r *http.Request) (any, error) {
			var v struct {
				Name string `json:"name"`
			}
			return &v, ReadJSON(r, &v)
		}),
		api.JSON("GET /yes", nil, func(r *http.Request) (any, error) {
			yes, err := QueryBool(r, "yes")
			return yes, err
		}, "yes"),
		api.JSON("GET /missing", nil, func(*http.Request) (any, error) { return nil, missing }),
		api.JSON("GET /other", nil, func(*http.Request) (any, error) { return nil, other }),
		api.JSON("GET /secret", func(*http.Request) error { return Errorf(http.StatusForbidden, "not you") }, func(*http.Request) (any, error) {
			t.Error("it was asked")
			return nil, nil
		}),
		api.Raw("GET /raw", nil, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, "as it is <&>")
			return err
		}),
	} {
		mux.Handle(route.Pattern, route.Handler)
	}
	for name, tc := range map[string]struct {
		method, target, body string
		status               int
		want                 string // the answer, or what is in the detail of the problem
	}{
		"as asked":        {"POST", "/echo", `{"name":"<a&b>"}`, 200, `{"name":"<a&b>"}` + "\n"},
		"no body":         {"POST", "/echo", "", 200, `{"name":""}` + "\n"},
		"unknown name":    {"POST", "/echo", `{"nam":1}`, 400, "nam"},
		"other case":      {"POST", "/echo", `{"Name":"a"}`, 400, "Name"},
		"twice":           {"POST", "/echo", `{"name":"a","name":"b"}`, 400, "name"},
		"too large":       {"POST", "/echo", `{"name":"` + strings.Repeat("x", 64) + `"}`, 413, "too large"},
		"yes":             {"GET", "/yes?yes=true", "", 200, "true\n"},
		"no":              {"GET", "/yes", "", 200, "false\n"},
		"neither":         {"GET", "/yes?yes=maybe", "", 400, `yes="maybe": use true or false`},
		"unknown query":   {"GET", "/yes?no=true", "", 400, "there are yes"},
		"none known":      {"GET", "/missing?x=1", "", 400, "there are none here"},
		"mapped":          {"GET", "/missing", "", 404, "there is none"},
		"mapped as other": {"GET", "/other", "", 418, "other"},
		"may not":         {"GET", "/secret", "", 403, "not you"},
		"raw":             {"GET", "/raw", "", 200, "as it is <&>"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(tc.method, tc.target, strings.NewReader(tc.body)))
		got := w.Body.String()
		if tc.status >= 400 {
			var p Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != tc.status || p.Title == "" || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %v, %s", name, err, got)
			}
			if got = p.Error(); !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q", name, got)
			}
		} else if got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
		if w.Code != tc.status {
			t.Errorf("%s: %d, not %d", name, w.Code, tc.status)
		}
	}
	if status := (&API{}).StatusOf(other); status != http.StatusUnprocessableEntity {
		t.Errorf("unmapped: %d", status)
	}
}
