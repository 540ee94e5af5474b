// Package httpserver is the HTTP surface: one server with the MCP endpoint,
// health and readiness, and whatever routes the application adds.
//
// It checks who may come in before anything else looks at a request: the Host
// and Origin headers, so that no web page can reach a server on loopback by a
// name of its own, and the bearer token. On loopback that is a token file; a
// server that others can reach needs tokens with names, or an OAuth 2.1
// authorization server whose tokens it verifies (specification M-9). Routes that
// say so take tickets from browsers, which can send no token (specification
// F-22).
//
// It speaks HTTP/1.1 and HTTP/2, the latter with and without TLS. There is no
// write timeout for a whole response, which would end every stream: each write
// has a deadline of its own.
package httpserver
