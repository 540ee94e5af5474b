package worker

import (
	"fmt"
	"time"
)

// timerKind names a wait.
type timerKind string

// Waits of the host and of the worker, with their row in the deadline table.
const (
	timerDial      timerKind = "dial"      // host: creation → first socket
	timerOuter     timerKind = "outer"     // host: creation → running, never extended
	timerHandshake timerKind = "handshake" // both: socket → initialized
	timerReady     timerKind = "ready"     // host: initialized → running; worker: initialized → executors stand
	timerHeartbeat timerKind = "heartbeat" // host: last heartbeat → next
	timerRelease   timerKind = "release"   // host: release → its report
	timerClosing   timerKind = "closing"   // host: report → the worker's close
	timerReconnect timerKind = "reconnect" // host: socket lost → bound again
	timerIdle      timerKind = "idle"      // both: last call → release, or the worker's own stop
	timerExec      timerKind = "exec"      // both: process start → hard stop
	timerDrain     timerKind = "drain"     // host: draining → 4008
	timerReadyAck  timerKind = "ready_ack" // worker: ready → tools/list
	timerBeat      timerKind = "beat"      // worker: next heartbeat
	timerGrace     timerKind = "grace"     // worker: last answered heartbeat → channel lost
	timerWindow    timerKind = "window"    // worker: channel lost → back
	timerBackoff   timerKind = "backoff"   // worker: next dial
	timerFlush     timerKind = "flush"     // worker: upload until
)

// channelID numbers the connections of a machine, from 1.
type channelID int64

// timerID is one armed wait: of a connection, or of the whole session when
// channel is 0. A wait of a connection never outlives it.
type timerID struct {
	kind    timerKind
	channel channelID
}

func (t timerID) String() string { return fmt.Sprintf("%s/%d", t.kind, t.channel) }

// timers is what a machine has armed. It decides which fired timers still
// count, so that a timer that fires while it is being stopped does nothing.
type timers map[timerID]time.Time

// due removes and reports a timer that fired at its time.
func (t timers) due(id timerID, now time.Time) bool {
	at, armed := t[id]
	if !armed || now.Before(at) {
		return false
	}
	delete(t, id)
	return true
}
