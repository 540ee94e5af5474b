package jsonx_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/jsonx"
)

type explained struct {
	explainedHead

	Text   string            `json:"text"`
	Count  int64             `json:"count,omitzero"`
	Size   uint8             `json:"size"`
	Wait   bool              `json:"wait"`
	List   []string          `json:"list"`
	Data   []byte            `json:"data"`
	Model  *explainedModel   `json:"model"`
	Models []explainedModel  `json:"models"`
	Env    map[string]string `json:"env"`
}

type explainedHead struct {
	ID int `json:"id"`
}

type explainedModel struct {
	URL  string `json:"url"`
	Name string `json:"name"`
}

// Whoever sent the JSON knows its fields, and nothing of our types.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"text":1}`, `"text" is a number; give a string`},
		{`{"count":"x"}`, `"count" is a string; give a whole number`},
		{`{"count":1.5}`, `"count" is a number of another kind, or too large; give a whole number`},
		{`{"size":-1}`, `"size" is a number of another kind, or too large; give a whole number that is not negative`},
		{`{"id":null,"wait":"yes"}`, `"wait" is a string; give true or false`},
		{`{"list":"x"}`, `"list" is a string; give an array of strings`},
		{`{"list":[true]}`, `"list.0" is true or false; give a string`},
		{`{"data":"!"}`, `"data" is a string of another form; give a string in base64`},
		{`{"model":[]}`, `"model" is an array; give an object; there are url, name`},
		{`{"models":{}}`, `"models" is an object; give an array`},
		{`{"models":[{"uri":"x"}]}`, `"models.0.uri" is no field; there are url, name`},
		{`{"env":{"A":1}}`, `"env.A" is a number; give a string`},
		{`{"Text":"x"}`, `"Text" is no field; there are id, text, count, size, wait, list, data, model, models, env`},
		{`{"text":"a","text":"b"}`, `"text" is there twice`},
		{`[1]`, `the whole is an array; give an object; there are id, text, count, size, wait, list, data, model, models, env`},
		{`{"text":`, `it is no JSON: unexpected EOF at byte 8`},
	} {
		err := json.Unmarshal([]byte(c.text), &explained{}, json.RejectUnknownMembers(true))
		if err == nil {
			t.Fatalf("%s is no mistake", c.text)
		}
		if got := jsonx.Explain(err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	if got := jsonx.Explain(errors.New("something else")); got != "something else" {
		t.Errorf("another error is %q", got)
	}
}

// What is repeated of a stranger's JSON is bounded, and no markup or control.
func TestExplainIsBounded(t *testing.T) {
	t.Parallel()
	err := json.Unmarshal([]byte(`{"`+strings.Repeat("x", 1<<20)+`":1}`), &explained{}, json.RejectUnknownMembers(true))
	if got := jsonx.Explain(err); len(got) > 300 {
		t.Errorf("%d bytes, want few: %.100s", len(got), got)
	}
	err = json.Unmarshal([]byte(`{"a\u001b[2J\nb":1}`), &explained{}, json.RejectUnknownMembers(true))
	if got := jsonx.Explain(err); strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("control characters came through: %q", got)
	}
}
