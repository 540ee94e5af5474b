package irc

import "time"

// Bounds of the protocol, in bytes.
const (
	maxTags  = 8191 // of a line from the server, with "@" and the space
	maxLine  = 512  // of the rest, with CR LF
	maxBody  = maxLine - 2
	maxParam = 15
	maxNick  = 64 // no network has longer ones
	maxSASL  = 400
)

// Bounds that are ours.
const (
	maxText     = 400 // bytes of text in a line that we send
	minText     = 100 // however long our own address is
	maxChannels = 50
	maxPeers    = 256
	// unknownMask is what others see of us behind the nick, at most, as long as
	// the server has not shown us: "!" user "@" host.
	unknownMask = 1 + 11 + 1 + 63
)

// How long things may take.
const (
	dialTime     = 15 * time.Second
	registerTime = 60 * time.Second // servers look up hosts and idents first
	idleTime     = 60 * time.Second // silence that is asked about with a PING
	pongTime     = 30 * time.Second // and that ends the connection after it
	writeTime    = 10 * time.Second
	stopTime     = 2 * time.Second  // for the goodbye
	publishTime  = 30 * time.Second // one Publish, if its context allows more
	joinTime     = 30 * time.Second // until a JOIN without an answer is repeated
	firstRejoin  = 30 * time.Second // after a refused JOIN or a KICK; then doubled
	lastRejoin   = 10 * time.Minute
	regainTime   = 60 * time.Second // between attempts to get our nick back

	firstBackoff = 1 * time.Second
	lastBackoff  = 60 * time.Second
	healthyTime  = 60 * time.Second // registered for so long, the pauses begin anew
)

// Commands.
const (
	cmdAuthenticate = "AUTHENTICATE"
	cmdCap          = "CAP"
	cmdError        = "ERROR"
	cmdJoin         = "JOIN"
	cmdKick         = "KICK"
	cmdNick         = "NICK"
	cmdPart         = "PART"
	cmdPass         = "PASS"
	cmdPing         = "PING"
	cmdPong         = "PONG"
	cmdPrivmsg      = "PRIVMSG"
	cmdQuit         = "QUIT"
	cmdUser         = "USER"
)

// Numerics.
const (
	rplWelcome          = "001"
	rplISupport         = "005"
	errUnknownCommand   = "421"
	errErroneousNick    = "432"
	errNicknameInUse    = "433"
	errNickCollision    = "436"
	errUnavailable      = "437"
	errNotOnChannel     = "442"
	errPasswordMismatch = "464"
	errBanned           = "465"
	errNickLocked       = "902"
	rplSASLSuccess      = "903"
	errSASLFail         = "904"
	errSASLTooLong      = "905"
	errSASLAborted      = "906"
	rplSASLMechs        = "908"
)
