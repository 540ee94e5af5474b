package irc

import "time"

// idleWait is how long the writer sleeps when nothing is planned.
const idleWait = time.Hour

// action is a line to send. Both functions are called under the lock.
type action struct {
	command string
	params  []string
	begin   func() // just before it is written
	done    func() // when it has been written
}

// next chooses the line to send: channels to join come first, then our nick,
// then replies. If there is none, wait says when there may be one.
func (c *Client) next(now time.Time) (a *action, wait time.Duration) {
	wait = idleWait
	if !c.registered {
		return nil, wait
	}
	for _, r := range c.rooms {
		if r.joined {
			continue
		}
		if in := r.retry.Sub(now); in > 0 {
			wait = min(wait, in)
			continue
		}
		params := []string{r.name}
		if r.key != "" {
			params = append(params, r.key)
		}
		return &action{cmdJoin, params, func() { r.retry = now.Add(joinTime) }, func() {}}, 0
	}
	if !c.names.equal(c.nick, c.want) {
		in := c.regain.Sub(now)
		if in <= 0 {
			return &action{cmdNick, []string{c.want}, func() { c.regain = now.Add(regainTime) }, func() {}}, 0
		}
		wait = min(wait, in)
	}
	for _, q := range c.out.lines {
		if q.to.ready() != nil {
			continue // it waits for its channel, and holds up no other
		}
		return &action{cmdPrivmsg, []string{q.to.name, q.text}, func() {}, func() {
			c.out.remove(q)
			c.wake()
		}}, 0
	}
	if len(c.out.lines) > 0 {
		wait = min(wait, c.out.lines[0].at.Add(c.out.age).Sub(now))
	}
	return nil, wait
}
