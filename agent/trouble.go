package agent

import (
	"errors"
	"strings"
	"time"
)

// Trouble is what is wrong with a session whose state alone would hide it. It is
// over with the next turn that completes.
type Trouble struct {
	Kind TroubleKind `json:"kind"`
	// Text is one line of at most [MaxTrouble] bytes for people: why, and what to do.
	Text string `json:"text"`
	// Since is when it became so; of a turn that was cut off, when the turn began,
	// because nobody saw its end.
	Since time.Time `json:"since,omitzero"`
}

// TroubleKind says what is wrong.
type TroubleKind string

// Kinds of trouble.
const (
	TroubleUnavailable TroubleKind = "agent_unavailable" // it could not be started
	TroubleExited      TroubleKind = "agent_exited"      // the next turn starts another
	TroubleFailed      TroubleKind = "turn_failed"       // the last one
	TroubleCutOff      TroubleKind = "turn_cut_off"      // the last one: ossicle ended in its midst
)

// MaxTrouble bounds Trouble.Text, in bytes.
const MaxTrouble = 512

// maxCause is what a cause may take of it.
const maxCause = 320

// Cause says why a run ended without being delivered.
type Cause string

// Causes of EntryRunEnd.
const (
	CauseCancelled   Cause = "cancelled"   // a person wanted it
	CauseReset       Cause = "reset"       // a person wanted the conversation to end
	CauseStopped     Cause = "stopped"     // the session ended first
	CauseUnavailable Cause = "unavailable" // the agent could not be started
	CauseExited      Cause = "exited"      // the agent ended in the midst of the turn
	CauseFailed      Cause = "failed"      // anything else
	// CauseCutOff: the process that hosted the agent ended in the midst of the turn.
	// Whoever opens the session next records it.
	CauseCutOff Cause = "cut_off"
)

// startError says that there was no agent to take a turn.
type startError struct{ err error }

func (e *startError) Error() string { return "start agent: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// CauseOf sorts the error of a run, or of [EventExited]; empty for none.
func CauseOf(err error) Cause {
	var exit *ExitError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrCancelled):
		return CauseCancelled
	case errors.Is(err, errReset):
		return CauseReset
	case errors.Is(err, errShutdown):
		return CauseStopped
	case errors.As(err, new(*startError)), errors.As(err, new(*RestartError)):
		return CauseUnavailable
	case errors.As(err, &exit):
		return CauseExited
	}
	return CauseFailed
}

// errCutOff is what is recorded of a turn that the end of a process cut off.
var errCutOff = errors.New("run turn: the process that ran it ended in its midst")

// troubles are what is wrong with a session: with its agent, which is another one
// after every start, and with the last turn, which the transcript tells too.
type troubles struct {
	agent, turn *Trouble
	// waits: there was no agent because too many have ended; a reset allows another.
	waits bool
}

// worst is what is to be told of them.
func (t *troubles) worst() *Trouble {
	if t.agent != nil {
		return t.agent
	}
	return t.turn
}

// unavailable notes that the agent cannot be started.
func (t *troubles) unavailable(now time.Time, why string, err error) {
	advice := "Mend the cause; your next message tries again."
	if t.waits = errors.As(err, new(*RestartError)); t.waits {
		advice = "Mend what ends it; a reset allows a start at once."
	}
	t.agent = newTrouble(TroubleUnavailable, now, "The agent could not be started", why, advice)
}

// exited notes that the agent has ended.
func (t *troubles) exited(now time.Time, why string) {
	t.agent = newTrouble(TroubleExited, now, "The agent ended", why, "Your next message starts it again.")
}

// reset notes that a person wants to start afresh, which mends no agent that cannot
// be started.
func (t *troubles) reset() {
	t.turn = nil
	if t.waits || t.agent != nil && t.agent.Kind == TroubleExited {
		t.agent = nil
	}
}

// ended notes how a run ended. Why is the error as it may be shown.
func (t *troubles) ended(at time.Time, cause Cause, why string) {
	switch cause {
	case "", CauseCancelled, CauseReset: // all is well, or a person has moved on
		t.turn = nil
	default:
		t.turn = ofTurn(at, cause, why)
	}
}

func ofTurn(at time.Time, cause Cause, why string) *Trouble {
	switch cause {
	case CauseCutOff:
		return newTrouble(TroubleCutOff, at, "The last turn was cut off: ossicle ended in its midst", "", "Part of it may be done; say it again if it is needed.")
	case CauseStopped:
		return newTrouble(TroubleCutOff, at, "The last turn was cut off: the session was stopped in its midst", "", "Part of it may be done; say it again if it is needed.")
	case CauseUnavailable:
		return newTrouble(TroubleFailed, at, "The last turn failed: the agent could not be started", why, "Say it again to try again.")
	case CauseExited:
		return newTrouble(TroubleFailed, at, "The last turn failed: the agent ended in its midst", why, "Part of it may be done; say it again if it is needed.")
	case CauseFailed, "", CauseCancelled, CauseReset:
	}
	return newTrouble(TroubleFailed, at, "The last turn failed", why, "Say it again to try again.")
}

// shown is an error of the agent as it may be shown, without what the sentence around
// it says.
func (s *Session) shown(err error) string { return s.scrub(text(err)) }

func (s *Session) scrub(why string) string {
	why = Why(why)
	if s.opts.Scrub != nil {
		why = s.opts.Scrub(why)
	}
	return why
}

// Why is the text of an error of a run without what a sentence around it says, which
// knows its [CauseOf].
func Why(text string) string {
	text = strings.TrimPrefix(text, "start agent: ")
	if exit, ok := strings.CutPrefix(text, "run agent: it exited"); ok {
		text = strings.TrimPrefix(exit, ": ")
	}
	return text
}

func newTrouble(kind TroubleKind, at time.Time, what, why, advice string) *Trouble {
	if why = cut(oneLine(why), maxCause); why != "" {
		what += ": " + why
	}
	return &Trouble{Kind: kind, Since: at, Text: strings.TrimRight(what, ". ") + ". " + advice}
}

// LastTurn is how the last turn of a transcript ended.
type LastTurn struct {
	Run   string
	Began time.Time // zero if that is not among the entries
	Ended time.Time // zero: nobody ended it
	Cause Cause     // empty if it was delivered, and while nobody ended it
	Why   string    // the error

	start *Entry
}

// FindLastTurn looks for the last turn in the last entries of a transcript. It is
// nil if there is none in them, or the conversation was reset behind it.
func FindLastTurn(tail []Entry) *LastTurn {
	var last *LastTurn
	for i := range tail {
		e := &tail[i]
		switch {
		case e.Kind == EntryAgent && e.Title == titleReset:
			last = nil
		case e.Kind == EntryRunEnd:
			began := time.Time{}
			if last != nil && last.Run == e.Run {
				began = last.Began
			}
			last = &LastTurn{Run: e.Run, Began: began, Ended: e.Time, Cause: e.Cause, Why: e.Error}
			if e.Error != "" && e.Cause == "" {
				last.Cause = CauseFailed
			}
		case e.Kind == EntryRunStart:
			last = &LastTurn{Run: e.Run, Began: e.Time, start: e}
		case e.Run != "" && (last == nil || last.Run != e.Run):
			last = &LastTurn{Run: e.Run} // its beginning is further back
		}
	}
	return last
}

// Trouble is what is wrong with a session that does not run, without the error,
// which only the session can show: it knows what is secret in it.
func (l *LastTurn) Trouble() *Trouble {
	var t troubles
	switch {
	case l == nil:
	case l.Ended.IsZero():
		t.ended(l.Began, CauseCutOff, "")
	default:
		t.ended(l.since(), l.Cause, "")
	}
	return t.worst()
}

// since is when a turn that has ended became trouble.
func (l *LastTurn) since() time.Time {
	if l.Cause == CauseCutOff && !l.Began.IsZero() {
		return l.Began
	}
	return l.Ended
}
