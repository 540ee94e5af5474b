package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
)

// DefaultNick is the agent's name in a chat.
const DefaultNick = "ossicle"

// chatFlags say where in IRC the agent is.
type chatFlags struct {
	host        string
	channels    []string
	nick        string
	tls         bool
	passwordEnv string
	saslUser    string
	saslEnv     string
	chatter     bool
}

func (f *chatFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.host, "irc", "", "IRC server, HOST or HOST:PORT, on which the agent answers when it is addressed")
	flags.StringArrayVar(&f.channels, "channel", nil, "IRC channel to join, '#name' or '#name key'; notices are answered in the first (repeatable)")
	flags.StringVar(&f.nick, "nick", DefaultNick, "name of the agent on IRC")
	flags.BoolVar(&f.tls, "irc-tls", false, "encrypt the connection to the IRC server")
	flags.StringVar(&f.passwordEnv, "irc-password-env", "", "environment variable that holds the password of the IRC server")
	flags.StringVar(&f.saslUser, "irc-account", "", "account to log in to on IRC (SASL PLAIN)")
	flags.StringVar(&f.saslEnv, "irc-account-password-env", "", "environment variable that holds its password")
	flags.BoolVar(&f.chatter, "chatter", false, "let the agent hear what is not said to it")
}

// chat is what the flags say, nil without --irc.
func (f *chatFlags) chat(e *env) (*app.Chat, error) {
	if f.host == "" {
		if len(f.channels) > 0 || f.tls || f.chatter || f.passwordEnv != "" || f.saslUser != "" {
			return nil, errors.New("--channel, --chatter and the --irc-… flags go with --irc")
		}
		return nil, nil //nolint:nilnil // no chat is no error
	}
	if len(f.channels) == 0 {
		return nil, errors.New("--irc needs at least one --channel")
	}
	c := &app.Chat{Host: f.host, TLS: f.tls, Nick: f.nick, Channels: f.channels, SASLUser: f.saslUser, Chatter: f.chatter}
	for _, s := range []struct {
		to       *string
		variable string
	}{{&c.Password, f.passwordEnv}, {&c.SASLPass, f.saslEnv}} {
		if s.variable == "" {
			continue
		}
		value, ok := e.getenv(s.variable)
		if !ok || value == "" {
			return nil, fmt.Errorf("the variable %s, which holds a password, is not set", s.variable)
		}
		*s.to = value
	}
	return c, nil
}
