// Package feed is an ordered, durable log of events and its distribution:
// writers append through a [Store], a [Hub] hands what was committed to any
// number of subscribers, and each of them gets every event once and in order,
// or is told by a [Gap] what it did not get.
//
// The order of ids is the order in which events become visible. The store
// assigns them, under its own lock, so that nobody who has seen an id meets a
// lower one later. The hub never publishes what it was given: it reads the log
// after the commit, so a crash at any instruction neither loses nor repeats an
// event, and a bus between processes only has to say that the log has grown.
//
// Buffers and what happens when they are full:
//
//	ring of the last events      the oldest leaves; readers further back read the store
//	a subscriber's lag           its Policy: drop-oldest, drop-newest, disconnect
//	replays from the store       the next one waits for its turn
//	a digest                     types beyond the most count as others; old lines go
//
// The API is experimental.
package feed
