// Package nats is a bus over core NATS.
//
// The bus is at most once: a message says that the log has grown, and whoever
// was deaf meanwhile rings for itself when it hears again. Nothing is stored in
// the server, so it needs no JetStream.
package nats
