package postgres

import "time"

// clockSlack is how far the clock of this machine and that of the server may be
// apart before it matters: far more than an answer takes, and far less than
// anything here waits for.
const clockSlack = 2 * time.Second

// ahead is by how much the server's clock is ahead of ours, from what it said
// between two looks at ours. A difference that does not matter is none.
func ahead(before, server, after time.Time) time.Duration {
	if server.After(before.Add(-clockSlack)) && server.Before(after.Add(clockSlack)) {
		return 0
	}
	return server.Sub(before.Add(after.Sub(before) / 2))
}
