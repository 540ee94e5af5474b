package feedserver

import "sync/atomic"

// Stats are what a server counts from its start.
type Stats struct {
	// Streams are open, and Direct of them taken over from net/http. Replaying of
	// them wait for the store. Polls are long polls under way.
	Streams, Direct, Replaying, Polls int64
	// Queued are the bytes that wait for clients that are slow to read.
	Queued int64
	// Writes were made, with so many Bytes and Events.
	Writes, Bytes, Events int64
	// Cut are the streams that the write deadline has ended, Slow those that a
	// policy has, and Lapsed those whose token has ended.
	Cut, Slow, Lapsed int64
	// Published are events that were taken, Refused requests of any kind that were
	// answered with a problem.
	Published, Refused int64
}

type counters struct {
	streams, direct, replaying, polls atomic.Int64
	queued                            atomic.Int64
	writes, bytes, events             atomic.Int64
	cut, slow, lapsed                 atomic.Int64
	published, refused                atomic.Int64
}

// Stats returns the counts of this moment.
func (s *Server) Stats() Stats {
	c := &s.counts
	return Stats{
		Streams: c.streams.Load(), Direct: c.direct.Load(), Replaying: c.replaying.Load(), Polls: c.polls.Load(), Queued: c.queued.Load(),
		Writes: c.writes.Load(), Bytes: c.bytes.Load(), Events: c.events.Load(),
		Cut: c.cut.Load(), Slow: c.slow.Load(), Lapsed: c.lapsed.Load(),
		Published: c.published.Load(), Refused: c.refused.Load(),
	}
}
