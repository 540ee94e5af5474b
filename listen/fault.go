package listen

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fault is a request that cannot be served, on its way to the peer: the error of
// the response, and over HTTP the status. This file is the table of all of them;
// each text says what to do.
type fault struct {
	status int
	wireError
}

func newFault(status int, code int64, format string, args ...any) *fault {
	return &fault{status: status, wireError: wireError{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func (f *fault) with(dataFormat string, args ...any) *fault {
	f.Data = jsontext.Value(fmt.Sprintf(dataFormat, args...))
	return f
}

func faultBodyTooLarge(limit int64) *fault {
	return newFault(http.StatusRequestEntityTooLarge, codeInvalidRequest,
		"request body is over %d bytes: split the listen into several", limit)
}

func faultSlowBody() *fault {
	return newFault(http.StatusRequestTimeout, codeInvalidRequest, "request body did not come in time: send it at once")
}

func faultUnread(err error) *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "read request body: %v", err)
}

func faultContentType() *fault {
	return newFault(http.StatusUnsupportedMediaType, codeInvalidRequest, "send Content-Type: %s", mimeJSON)
}

func faultAccept() *fault {
	return newFault(http.StatusNotAcceptable, codeInvalidRequest, "send Accept: %s, %s", mimeJSON, mimeEventStream)
}

func faultNoStream() *fault {
	return newFault(http.StatusInternalServerError, codeInternalError,
		"this server cannot stream here: something in front of it buffers responses")
}

// faultParse tells what is no JSON from what is no message.
func faultParse(err error) *fault {
	if semantic := (*json.SemanticError)(nil); errors.As(err, &semantic) {
		return newFault(http.StatusBadRequest, codeInvalidRequest, "message is no JSON-RPC: %s", jsonProblem(err))
	}
	return newFault(http.StatusBadRequest, codeParseError, "message is no JSON: %s", jsonProblem(err))
}

// jsonProblem says what is wrong with JSON in words for the peer: where it is,
// rather than which Go type it did not fit.
func jsonProblem(err error) string {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntactic):
		return fmt.Sprintf("%s at byte %d", truncate(fmt.Sprint(syntactic.Err), 128), syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return fmt.Sprintf("wrong type at %q", truncate(string(semantic.JSONPointer), 128))
	default:
		return truncate(err.Error(), 128)
	}
}

func faultBatch() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "send one message, not a batch: revision %s has none", ProtocolVersion)
}

func faultLine(limit int) *fault {
	return newFault(http.StatusRequestEntityTooLarge, codeInvalidRequest, "line is over %d bytes: it was skipped", limit)
}

func faultDepth() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "message is nested over %d deep: flatten it", maxDepth)
}

func faultNoMessage() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "send a method, or a result, or an error")
}

func faultBadBatch() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "batch is empty, or holds something that is no message")
}

func faultVersionTag() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, `send "jsonrpc":"2.0"`)
}

func faultID() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest,
		"send an id: a string or an integer of at most %d bytes", maxID)
}

func faultIDInUse() *fault {
	return newFault(http.StatusBadRequest, codeInvalidRequest, "id belongs to a listen that is still open: choose another")
}

func faultHeaderMissing(name string) *fault {
	return newFault(http.StatusBadRequest, codeHeaderMismatch, "send the header %s", name)
}

func faultHeaderMismatch(name, header, body string) *fault {
	return newFault(http.StatusBadRequest, codeHeaderMismatch,
		"header %s says %q and the body %q: make them equal", name, truncate(header, 64), truncate(body, 64))
}

func faultParams(err error) *fault {
	return newFault(http.StatusBadRequest, codeInvalidParams, "params of %s: %s", methodListen, jsonProblem(err))
}

func faultMeta(key string) *fault {
	return newFault(http.StatusBadRequest, codeInvalidParams, "send _meta field %q", key)
}

func faultNoFilter() *fault {
	return newFault(http.StatusBadRequest, codeInvalidParams, `send "notifications": what to listen for`)
}

func faultTooManyURIs(limit int) *fault {
	return newFault(http.StatusBadRequest, codeInvalidParams,
		"more than %d resourceSubscriptions: split the listen into several", limit).with(`{"limit":%d}`, limit)
}

func faultVersion(requested string) *fault {
	return newFault(http.StatusBadRequest, codeUnsupportedVersion, "protocol version is not supported by %s", methodListen).
		with(`{"supported":[%q],"requested":%s}`, ProtocolVersion, appendString(nil, truncate(requested, 64)))
}

func faultLegacyListen() *fault {
	return newFault(http.StatusNotFound, codeMethodNotFound,
		"%s is a method of revision %s: name that in _meta, or use resources/subscribe", methodListen, ProtocolVersion)
}

func faultTooManyListens(limit int) *fault {
	return newFault(http.StatusServiceUnavailable, codeTooManyListens,
		"this server has its %d listens: end one, put more URIs into one, or try later", limit).with(`{"limit":%d}`, limit)
}

func faultTooManySubscriptions(limit int) *fault {
	return newFault(http.StatusBadRequest, codeInvalidParams,
		"this session has its %d subscriptions: end one first", limit).with(`{"limit":%d}`, limit)
}

// faultRefused answers a legacy subscription that a listen would leave out of its
// acknowledgement.
func faultRefused(r refusal) *fault {
	return newFault(http.StatusBadRequest, r.Code, "%s", r.Message).with(`{"uri":%s}`, appendString(nil, r.URI))
}

func faultShuttingDown() *fault {
	return newFault(http.StatusServiceUnavailable, codeShuttingDown, "this server is shutting down: try again later")
}
