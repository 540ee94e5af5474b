// Package redis is a bus over the publish and subscribe of a Redis server.
//
// The bus is at most once: a message says that the log has grown, and whoever
// was deaf meanwhile rings for itself when it hears again. Nothing is stored in
// the server.
package redis
