package feed

// Lag returns how many events subscribers still have to get of those in memory:
// the one furthest behind, and all together. It looks at every subscription.
func (h *Hub) Lag() (most, total int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.groups {
		for s := range g.subs {
			next := g.after(s.cursor)
			if s.live && s.gen == h.gen {
				next = max(s.next, g.oldest())
			}
			lag := g.n - next
			most, total = max(most, lag), total+lag
		}
	}
	return most, total
}
