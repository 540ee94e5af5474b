package irc

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxLines  = 10
	DefaultQueueSize = 64
	DefaultQueueAge  = 2 * time.Minute
	DefaultBurst     = 5
	DefaultInterval  = time.Second
)

// Options adjust a Client. Zero fields take the defaults.
type Options struct {
	// TLS encrypts the connection; nil means plain TCP. Without a ServerName the
	// host of the address is verified.
	TLS *tls.Config
	// Channels are joined, and joined again after a kick or a lost connection: a
	// name, or a name and a key with a space between.
	Channels []string
	// Password is the server's (PASS).
	Password string
	// SASLUser and SASLPassword log in to an account (SASL PLAIN). Without TLS
	// they are refused, except on the loopback interface. A server that does not
	// take them is not used.
	SASLUser, SASLPassword string
	// Username and Realname are shown to those who ask for them; the default is
	// the nick.
	Username, Realname string
	// Chatter also delivers what is said in a channel to others.
	Chatter bool

	// MaxLines bounds the lines of one reply, of at most 400 bytes each; the rest
	// is left out, and a line more says so.
	MaxLines int
	// QueueSize bounds the lines that wait to be sent. Publish waits for room.
	QueueSize int
	// QueueAge bounds how long a line waits, for instance for the connection to
	// come back; after that it is dropped and logged.
	QueueAge time.Duration
	// Burst lines are sent at once, then one each Interval: servers throw out
	// those who are faster.
	Burst    int
	Interval time.Duration

	// Dial opens the connection, before TLS; the default is TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log gets irc.connected, irc.disconnected and the like; never a password.
	Log *slog.Logger
}

func (o *Options) orDefaults(addr, nick string) (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&f.MaxLines, DefaultMaxLines}, {&f.QueueSize, DefaultQueueSize}, {&f.Burst, DefaultBurst}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if f.QueueAge <= 0 {
		f.QueueAge = DefaultQueueAge
	}
	if f.Interval <= 0 {
		f.Interval = DefaultInterval
	}
	if f.Username == "" {
		f.Username = nick
	}
	if f.Realname == "" {
		f.Realname = nick
	}
	if f.Dial == nil {
		f.Dial = (&net.Dialer{}).DialContext
	}
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	return f, f.check(addr, nick)
}

// check refuses what could not work, or would be more than one word or line.
func (o *Options) check(addr, nick string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("check IRC address %q: %w", addr, err)
	}
	if !isNick(nick) {
		return fmt.Errorf("check IRC nick %q: not a nick", nick)
	}
	if o.MaxLines >= o.QueueSize {
		return fmt.Errorf("check IRC options: replies of %d lines do not fit a queue of %d", o.MaxLines+1, o.QueueSize)
	}
	if len(o.Channels) > maxChannels {
		return fmt.Errorf("check IRC channels: %d are more than %d", len(o.Channels), maxChannels)
	}
	for _, s := range o.Channels {
		name, key, _ := strings.Cut(s, " ")
		if !isChannel(name) || strings.ContainsAny(key, " ,:\x00\r\n") || len(key) > maxNick {
			return fmt.Errorf("check IRC channel %q: not a channel", name)
		}
	}
	for what, s := range map[string]string{"password": o.Password, "SASL user": o.SASLUser, "SASL password": o.SASLPassword, "username": o.Username, "realname": o.Realname} {
		if strings.ContainsAny(s, "\x00\r\n") || len(s) > maxText {
			return fmt.Errorf("check IRC %s: it has a line end, or is too long", what)
		}
	}
	if o.Username == "" || strings.ContainsAny(o.Username, " @:") {
		return fmt.Errorf("check IRC username %q: not a word", o.Username)
	}
	if o.SASLUser == "" && o.SASLPassword != "" {
		return fmt.Errorf("check IRC options: a SASL password without a user")
	}
	if o.SASLUser != "" && o.TLS == nil && !loopback(host) {
		return fmt.Errorf("check IRC options: SASL PLAIN to %s needs TLS", host)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
