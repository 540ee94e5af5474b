package jsonx

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxPlace bounds what an explanation repeats of somebody's JSON, in characters.
const maxPlace = 80

// Explain says what is wrong with JSON that was read into a Go value, in the words
// of whoever wrote the JSON: the field, what is in it and what is wanted there. It
// repeats names of fields, bounded and quoted, and no values. Other errors are told
// as they are.
func Explain(err error) string {
	var (
		meaning *json.SemanticError
		syntax  *jsontext.SyntacticError
	)
	switch {
	case errors.As(err, &meaning) && errors.Is(meaning.Err, json.ErrUnknownName):
		return place(meaning.JSONPointer) + " is no field" + fields(meaning.GoType)
	case errors.As(err, &meaning):
		return place(meaning.JSONPointer) + " is " + kind(meaning) + "; give " + wanted(meaning.GoType)
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return place(syntax.JSONPointer) + " is there twice"
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is no JSON: %v at byte %d", syntax.Err, syntax.ByteOffset)
	}
	return err.Error()
}

// place is the field that a pointer names.
func place(at jsontext.Pointer) string {
	if at == "" {
		return "the whole"
	}
	var b strings.Builder
	for token := range at.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return fmt.Sprintf("%.*q", maxPlace, b.String())
}

func kind(e *json.SemanticError) string {
	switch e.JSONKind { //nolint:exhaustive // the others begin no value
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "true or false"
	case jsontext.KindString:
		if e.Err != nil {
			return "a string of another form"
		}
		return "a string"
	case jsontext.KindNumber:
		if e.Err != nil {
			return "a number of another kind, or too large"
		}
		return "a number"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	}
	return "of another kind"
}

// wanted says what JSON a Go type is read from.
func wanted(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	switch t.Kind() { //nolint:exhaustive // the others are read from no JSON
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		if t.Elem().Kind() == reflect.String {
			return "an array of strings"
		}
		return "an array"
	case reflect.Struct:
		return "an object" + fields(t)
	case reflect.Map:
		return "an object"
	}
	return "something else"
}

// fields lists the names that an object may have.
func fields(t reflect.Type) string {
	names := appendFields(nil, t)
	if len(names) == 0 {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

func appendFields(names []string, t reflect.Type) []string {
	if t == nil || t.Kind() != reflect.Struct {
		return names
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = appendFields(names, f.Type)
		case f.IsExported() && name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
