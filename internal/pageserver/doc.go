// Package pageserver is the live connection of the page: a WebSocket on which a
// browser subscribes to topics and gets their state, and from then on every
// change of it. Each subscription begins with a snapshot, and what is pushed
// after it is exactly what has happened since. A reader that lags loses its
// subscription and is told so; it costs nobody else anything.
//
// What there is to see is a port, [Backend]; who may see it is decided here,
// before the backend is asked.
package pageserver
