package feed

import "sort"

// Item is an event as the hub hands it out.
type Item struct {
	Event

	// Frame is what Options.Encode made of the event, once for all subscribers.
	// It must not be changed.
	Frame []byte
}

// group is what all subscribers with one filter share: the last events that the
// filter selects, numbered. A subscriber is a number, so one that does not read
// holds nothing, and how far it lags is a subtraction.
type group struct {
	filter Filter
	ring   []*Item // the item with number k is at k modulo the capacity
	size   int     // capacity
	n      int64   // number of the next item
	floor  int64   // every selected event after this id, up to the head, is here
	policy Policy  // the strictest of the topics seen
	subs   map[*Subscription]struct{}
}

func newGroup(f Filter, size int, floor int64) *group {
	return &group{filter: f, size: size, floor: floor, subs: map[*Subscription]struct{}{}}
}

func (g *group) push(it *Item, p Policy) {
	g.policy = max(g.policy, p)
	if len(g.ring) < g.size {
		g.ring = append(g.ring, it)
	} else {
		at := &g.ring[g.n%int64(g.size)]
		g.floor, *at = (*at).ID, it
	}
	g.n++
}

// oldest is the number of the first item that is here.
func (g *group) oldest() int64 { return g.n - int64(len(g.ring)) }

func (g *group) item(number int64) *Item { return g.ring[number%int64(g.size)] }

// after is the number of the first item behind an id.
func (g *group) after(id int64) int64 {
	first := g.oldest()
	return first + int64(sort.Search(len(g.ring), func(i int) bool { return g.item(first+int64(i)).ID > id }))
}

// clear forgets the items. The numbers begin anew, so subscribers must be sent
// to the store.
func (g *group) clear(floor int64) {
	g.ring, g.n, g.floor = nil, 0, floor
}

// index finds the groups that select a topic. What an event costs does not grow
// with the filters that name other topics, of which there may be one for each
// subscriber. The zero index is ready.
type index struct {
	exact map[string]map[*group]struct{} // filters without an asterisk, by each topic
	broad map[*group]struct{}            // the others
}

func (x *index) add(g *group) {
	topics, exact := g.filter.topics()
	if !exact {
		if x.broad == nil {
			x.broad = map[*group]struct{}{}
		}
		x.broad[g] = struct{}{}
		return
	}
	if x.exact == nil {
		x.exact = map[string]map[*group]struct{}{}
	}
	for _, topic := range topics {
		if x.exact[topic] == nil {
			x.exact[topic] = map[*group]struct{}{}
		}
		x.exact[topic][g] = struct{}{}
	}
}

func (x *index) remove(g *group) {
	topics, _ := g.filter.topics()
	delete(x.broad, g)
	for _, topic := range topics {
		if delete(x.exact[topic], g); len(x.exact[topic]) == 0 {
			delete(x.exact, topic)
		}
	}
}

func (x *index) each(topic string, f func(*group)) {
	for g := range x.exact[topic] {
		f(g)
	}
	for g := range x.broad {
		if g.filter.Match(topic) {
			f(g)
		}
	}
}
