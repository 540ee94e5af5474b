package feed

import "time"

// Health is the state of something that the hub needs.
type Health struct {
	Err   string    `json:"error,omitzero"` // empty: it works
	Since time.Time `json:"since,omitzero"` // of the error
}

// Stats are what a hub counts from its start.
type Stats struct {
	Head        Position `json:"head"`
	Subscribers int      `json:"subscribers"`
	// Dropped counts the events that policies took from subscribers, by policy.
	// Of Disconnect it counts the subscribers.
	Dropped [Disconnect + 1]int64 `json:"dropped"`
	// FromRing and FromStore count the resumed subscriptions by where they began,
	// and Gaps what was told to subscribers.
	FromRing  int64  `json:"from_ring"`
	FromStore int64  `json:"from_store"`
	Gaps      int64  `json:"gaps"`
	Bus       Health `json:"bus"`
	Store     Health `json:"store"`
}

// ailing is a Bus that knows its own state: one that tries again by itself gives
// the hub no error to note.
type ailing interface{ Health() Health }

// Stats returns the counts of this moment.
func (h *Hub) Stats() Stats {
	var bus Health
	if b, ok := h.bus.(ailing); ok {
		bus = b.Health()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	if s.Bus.Err == "" {
		s.Bus = bus
	}
	s.Head, s.Subscribers = h.head, h.count
	return s
}

func (h *Hub) note(health *Health, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		*health = Health{}
	case health.Err == "":
		*health = Health{err.Error(), time.Now()}
	default:
		health.Err = err.Error()
	}
}
