package redis

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// errAddress does not repeat the address, nor a parser's words about it: there
// may be a password in what a parser cannot make sense of.
var errAddress = errors.New("the address is not understood; write redis://[[user]:password@]host[:port][/database][?prefix=name], or rediss:// for TLS")

// address is a parsed URL.
type address struct {
	client *goredis.Options
	prefix string
	name   string // scheme, host and database
}

func parse(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Fragment != "" || (u.Scheme != "redis" && u.Scheme != "rediss") {
		return address{}, errAddress
	}
	q := u.Query()
	prefix := q.Get("prefix")
	q.Del("prefix")
	if len(q) > 0 {
		return address{}, errAddress
	}
	u.RawQuery = ""
	o, err := goredis.ParseURL(u.String())
	if err != nil || o.DB < 0 {
		return address{}, errAddress
	}
	return address{o, prefix, u.Scheme + "://" + o.Addr + "/" + strconv.Itoa(o.DB)}, nil
}

// channel is the name of the channel of a bus. Channels are common to all
// databases of a server, so it names that, too.
func channel(prefix string, db int) string {
	return strings.Join([]string{prefix, strconv.Itoa(db), "feed"}, ":")
}
