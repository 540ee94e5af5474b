package observe

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// message is what matters of a JSON-RPC message.
type message struct {
	id     string // as JSON; empty for a notification
	method string
	params jsontext.Value // nil if it was cut off
	// answered: there is a result or an error; the value is nil if it was cut off.
	answered bool
	failed   bool
	result   jsontext.Value
	fault    jsontext.Value
}

// messages reads a message, or a batch of them. What is cut off is read as far as
// it goes, for names stand before large values. What is ambiguous is left out.
func messages(b []byte) []message {
	b = bytes.TrimLeft(b, " \t\r\n")
	switch {
	case len(b) == 0:
		return nil
	case b[0] != '[':
		if m, ok := read(b); ok {
			return []message{m}
		}
		return nil
	}
	var all []message
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '{' && len(all) < maxPending {
		v, err := d.ReadValue()
		if err != nil {
			break
		}
		if m, ok := read(v); ok {
			all = append(all, m)
		}
	}
	return all
}

// read reads the members of an object.
func read(b []byte) (message, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var m message
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return m, false
	}
	seen := map[string]bool{}
	for d.PeekKind() == '"' {
		tok, err := d.ReadToken()
		if err != nil {
			break
		}
		name := tok.String()
		if seen[name] {
			return m, false // whoever reads it may take either
		}
		seen[name] = true
		v, err := d.ReadValue()
		m.member(name, bytes.Clone(v), err == nil)
		if err != nil {
			break
		}
	}
	return m, m.method != "" || m.answered && m.id != ""
}

func (m *message) member(name string, v jsontext.Value, whole bool) {
	if !whole {
		v = nil
	}
	switch name {
	case "id":
		if k := v.Kind(); k == '"' || k == '0' {
			m.id = string(v)
		}
	case "method":
		if v.Kind() == '"' {
			_ = json.Unmarshal(v, &m.method)
		}
	case "params":
		m.params = v
	case "result":
		m.answered, m.result = true, v
	case "error":
		if v.Kind() != 'n' {
			m.answered, m.failed, m.fault = true, true, v
		}
	}
}

// decode reads part of a message; what does not fit is left empty.
func decode(v jsontext.Value, into any) {
	if v != nil {
		_ = json.Unmarshal(v, into, jsontext.AllowInvalidUTF8(true))
	}
}
