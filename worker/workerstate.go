package worker

import "time"

// workerState is where a worker process stands.
type workerState string

const (
	workerDialing   workerState = "dialing"   // a dial is under way
	workerWaiting   workerState = "waiting"   // connected, not yet initialized
	workerPreparing workerState = "preparing" // initialized, executors not yet built
	workerAnnounced workerState = "announced" // said ready, no tools/list yet
	workerServing   workerState = "serving"
	workerLost      workerState = "lost" // between dials
	workerWinding   workerState = "winding"
	workerEnded     workerState = "ended"
)

// dialOutcome is what a dial that did not open a channel means.
type dialOutcome struct {
	// retry allows another dial within the window, not before after.
	retry bool
	after time.Duration
	exit  ExitCode // when retry is false
	why   string
}

// Events of the worker machine.
type (
	workerEvent interface{ workerEvent() }

	workerDialed     struct{ ch channelID }
	workerDialFailed struct{ outcome dialOutcome }
	workerHello      struct {
		ch         channelID
		id         []byte
		mcpVersion string
		hello      hello
		bad        error // the frame has the wrong shape
	}
	workerInitialized struct{ ch channelID }
	workerPrepared    struct{ failed error } // executors and workspace stand, or not
	workerListed      struct{ ch channelID } // tools/list was answered
	workerBeatSent    struct {
		ch  channelID
		seq int64
	}
	workerBeatAnswered struct {
		ch     channelID
		seq    int64
		result heartbeatResult
	}
	workerReleaseCame struct {
		ch      channelID
		id      []byte
		release releaseParams
	}
	workerBadFrames struct{ ch channelID }
	workerClosed    struct {
		ch     channelID
		code   CloseCode
		reason string
	}
	workerSignalled struct{} // the sandbox is being stopped
	workerCallBegan struct{}
	workerCallEnded struct{}
	workerFlushed   struct{ report Report }
	workerFired     struct{ timer timerID }
)

func (workerDialed) workerEvent()       {}
func (workerDialFailed) workerEvent()   {}
func (workerHello) workerEvent()        {}
func (workerInitialized) workerEvent()  {}
func (workerPrepared) workerEvent()     {}
func (workerListed) workerEvent()       {}
func (workerBeatSent) workerEvent()     {}
func (workerBeatAnswered) workerEvent() {}
func (workerReleaseCame) workerEvent()  {}
func (workerBadFrames) workerEvent()    {}
func (workerClosed) workerEvent()       {}
func (workerSignalled) workerEvent()    {}
func (workerCallBegan) workerEvent()    {}
func (workerCallEnded) workerEvent()    {}
func (workerFlushed) workerEvent()      {}
func (workerFired) workerEvent()        {}

// Actions of the worker machine, executed in order.
type (
	workerAction interface{ workerAction() }

	workerDial    struct{ attempt int64 }
	workerWelcome struct { // answer initialize
		ch         channelID
		id         []byte
		mcpVersion string
		welcome    welcome
	}
	workerRefuse struct { // answer a request with an error
		ch  channelID
		id  []byte
		err *wireError
	}
	workerSendReady struct{ ch channelID }
	workerSendBeat  struct { // if the executors answer; then workerBeatSent follows
		ch  channelID
		seq int64
	}
	workerSendReport struct {
		ch     channelID
		id     []byte
		report Report
	}
	workerClose struct {
		ch     channelID
		code   CloseCode
		reason string
	}
	workerArm struct {
		timer timerID
		at    time.Time
	}
	workerDisarm      struct{ timer timerID }
	workerCancelCalls struct{}
	workerFlush       struct{} // stop executors, upload outputs; workerFlushed follows
	workerLog         struct{ event, detail string }
	workerExit        struct {
		code   ExitCode
		reason string
	}
)

func (workerDial) workerAction()        {}
func (workerWelcome) workerAction()     {}
func (workerRefuse) workerAction()      {}
func (workerSendReady) workerAction()   {}
func (workerSendBeat) workerAction()    {}
func (workerSendReport) workerAction()  {}
func (workerClose) workerAction()       {}
func (workerArm) workerAction()         {}
func (workerDisarm) workerAction()      {}
func (workerCancelCalls) workerAction() {}
func (workerFlush) workerAction()       {}
func (workerLog) workerAction()         {}
func (workerExit) workerAction()        {}

// winding says why a worker ends, and how.
type winding struct {
	reason string    // for the log and the close frame
	exit   ExitCode  // when no release was accepted
	close  CloseCode // likewise
	force  bool      // stop calls instead of waiting for them
	grace  time.Duration
}
