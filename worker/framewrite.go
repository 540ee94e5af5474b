package worker

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Frames are written member by member, so that what leaves has one form and no
// field that nobody promised.

// requestFrame writes a request with params that are already JSON.
func requestFrame(id jsontext.Value, method string, params jsontext.Value) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = appendMember(b, "method", method)
	return appendRaw(b, "params", params)
}

// noticeFrame writes a notification.
func noticeFrame(method string, params jsontext.Value) []byte {
	b := appendMember([]byte(`{"jsonrpc":"2.0"`), "method", method)
	return appendRaw(b, "params", params)
}

// resultFrame answers a request.
func resultFrame(id, result jsontext.Value) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	return appendRaw(b, "result", result)
}

// errorFrame refuses a request, or says with the id null what is wrong with
// something that cannot be answered.
func errorFrame(id jsontext.Value, e *wireError) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	raw, err := json.Marshal(e)
	if err != nil { // data that is not JSON: say the rest
		raw, _ = json.Marshal(&wireError{Code: e.Code, Message: e.Message})
	}
	return appendRaw(b, "error", raw)
}

func appendMember(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	quoted, err := jsontext.AppendQuote(b, value)
	if err != nil { // not UTF-8; AppendQuote has replaced what is not
		return quoted
	}
	return quoted
}

func appendRaw(b []byte, name string, value jsontext.Value) []byte {
	if value != nil {
		b = append(b, ',', '"')
		b = append(b, name...)
		b = append(b, '"', ':')
		b = append(b, value...)
	}
	return append(b, '}')
}

// mustJSON encodes a value of ours. It cannot fail for the types of this
// package; if it does, that is a defect and the frame says so.
func mustJSON(v any) jsontext.Value {
	raw, err := json.Marshal(v)
	if err != nil {
		raw, _ = json.Marshal(map[string]string{"defect": fmt.Sprintf("encode %T: %v", v, err)})
	}
	return raw
}

// mismatch is the data of an error that compares two values.
type mismatch struct {
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

func versionError(expected, got string) *wireError {
	return &wireError{CodeVersionMismatch, "CHANNEL_VERSION_MISMATCH", mustJSON(mismatch{expected, got})}
}

func sessionError(expected, got string) *wireError {
	return &wireError{CodeSessionMismatch, "SESSION_MISMATCH", mustJSON(mismatch{expected, got})}
}
