package irc

import (
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// login is how far SASL is.
type login int

const (
	loginNone login = iota
	loginAsked
	loginStarted
	loginSent
	loginDone
)

// nickTries bounds the nicks that are tried when ours is taken.
const nickTries = 12

// register says who we are. The order is the protocol's: capabilities hold back
// the welcome until CAP END.
func (l *link) register(ctx context.Context) error {
	o := &l.client.opts
	var lines []line
	if o.SASLUser != "" {
		l.login = loginAsked
		lines = append(lines, line{command: cmdCap, params: []string{"REQ", "sasl"}})
	}
	if o.Password != "" {
		lines = append(lines, line{command: cmdPass, params: []string{o.Password}})
	}
	lines = append(lines,
		line{command: cmdNick, params: []string{l.client.want}},
		line{command: cmdUser, params: []string{o.Username, "0", "*", o.Realname}})
	for _, s := range lines {
		if err := l.send(ctx, s.command, s.params...); err != nil {
			return err
		}
	}
	return nil
}

// registering takes what comes before the welcome, and the welcome.
func (l *link) registering(ctx context.Context, in line) error {
	switch in.command {
	case rplWelcome:
		if l.login != loginNone && l.login != loginDone {
			return &RefusedError{Code: cmdCap, Text: "the server let us in without the login"}
		}
		l.welcome(ctx, in)
	case errErroneousNick, errNicknameInUse, errNickCollision, errUnavailable:
		return l.otherNick(ctx, in)
	case errPasswordMismatch, errBanned:
		return &RefusedError{Code: in.command, Text: plain(in.last())}
	case errUnknownCommand:
		if l.login == loginAsked && strings.EqualFold(in.param(1), cmdCap) {
			return &RefusedError{Code: cmdCap, Text: "the server has no SASL"}
		}
	case cmdCap, cmdAuthenticate, rplSASLSuccess, errNickLocked, errSASLFail, errSASLTooLong, errSASLAborted, rplSASLMechs:
		return l.sasl(ctx, in)
	}
	return nil
}

// sasl goes through the login step by step. The password is sent once, and only
// when the server asks for it.
func (l *link) sasl(ctx context.Context, in line) error {
	switch {
	case l.login == loginNone:
		return nil
	case in.command == cmdCap && in.param(1) == "ACK" && l.login == loginAsked && hasWord(in.last(), "sasl"):
		l.login = loginStarted
		return l.send(ctx, cmdAuthenticate, "PLAIN")
	case in.command == cmdCap && in.param(1) == "NAK":
		return &RefusedError{Code: cmdCap, Text: "the server has no SASL"}
	case in.command == cmdCap:
		return nil
	case in.command == cmdAuthenticate && l.login == loginStarted && in.param(0) == "+":
		l.login = loginSent
		return l.credentials(ctx)
	case in.command == rplSASLSuccess && l.login == loginSent:
		l.login = loginDone
		return l.send(ctx, cmdCap, "END")
	}
	return &RefusedError{Code: in.command, Text: "SASL: " + plain(in.last())}
}

func (l *link) credentials(ctx context.Context) error {
	o := &l.client.opts
	s := base64.StdEncoding.EncodeToString([]byte(o.SASLUser + "\x00" + o.SASLUser + "\x00" + o.SASLPassword))
	for ; len(s) >= maxSASL; s = s[maxSASL:] {
		if err := l.send(ctx, cmdAuthenticate, s[:maxSASL]); err != nil {
			return err
		}
	}
	if s == "" {
		s = "+"
	}
	return l.send(ctx, cmdAuthenticate, s)
}

func hasWord(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

// otherNick tries another nick. Ours being invalid is final; others may just be
// too long for the server.
func (l *link) otherNick(ctx context.Context, in line) error {
	if in.command == errErroneousNick && l.tries == 0 {
		return &RefusedError{Code: in.command, Text: plain(in.last())}
	}
	if l.tries++; l.tries > nickTries {
		return errNickInUse
	}
	nick := alternative(l.client.want, l.tries)
	l.client.log.LogAttrs(ctx, slog.LevelInfo, "irc.nick_taken", logattr.Server(l.client.addr), logattr.Reason(plain(in.last())), logattr.Attempt(l.tries))
	return l.send(ctx, cmdNick, nick)
}

// alternative is the nth nick to try: longer ones first, then ones that are as
// long as ours, for servers that allow no more.
func alternative(nick string, n int) string {
	if n <= 2 {
		return nick + strings.Repeat("_", n)
	}
	runes := []rune(nick)
	tail := string("_`123456789"[n-3])
	if len(runes) == 1 {
		return nick + tail
	}
	return string(runes[:len(runes)-1]) + tail
}

func (l *link) welcome(ctx context.Context, in line) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l.since = time.Now()
	if isNick(in.param(0)) {
		c.nick = in.param(0)
	}
	c.regain = l.since.Add(regainTime)
	c.registered, c.ever = true, true
	c.log.LogAttrs(ctx, slog.LevelInfo, "irc.connected", logattr.Server(c.addr), nickAttr(c.nick))
	c.wake()
}
