package nats

import (
	"errors"
	"net/url"
	"strings"
)

const (
	defaultPort = "4222"
	// maxServers bounds the servers of one address.
	maxServers = 16
)

// errAddress does not repeat the address, nor a parser's words about it: there
// may be a password in what a parser cannot make sense of.
var errAddress = errors.New("the address is not understood; write nats://[user:password@]host[:port][?prefix=name], or tls:// for TLS; " +
	"several servers of a cluster are separated by commas")

// errPrefix does not repeat the prefix, which may be a part of the address.
var errPrefix = errors.New("the prefix is not understood; use letters, digits, underscores and hyphens, in words separated by dots")

// address is a parsed list of URLs.
type address struct {
	servers []string // with what is needed to log in
	secure  bool
	prefix  string
	name    string // schemes and hosts
}

func parse(text string) (address, error) {
	var a address
	var names []string
	parts := strings.Split(text, ",")
	if len(parts) > maxServers {
		return address{}, errAddress
	}
	for i, part := range parts {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.Hostname() == "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" || (u.Scheme != "nats" && u.Scheme != "tls") {
			return address{}, errAddress
		}
		q := u.Query()
		prefix := q.Get("prefix")
		if q.Del("prefix"); len(q) > 0 || (a.prefix != "" && prefix != "" && a.prefix != prefix) {
			return address{}, errAddress
		}
		if prefix != "" {
			a.prefix = prefix
		}
		if secure := u.Scheme == "tls"; i > 0 && a.secure != secure {
			return address{}, errAddress // a password meant for TLS must not go over another
		}
		a.secure = u.Scheme == "tls"
		if u.Port() == "" {
			u.Host = strings.TrimSuffix(u.Host, ":") + ":" + defaultPort
		}
		u.RawQuery, u.Path = "", ""
		a.servers = append(a.servers, u.String())
		names = append(names, u.Scheme+"://"+u.Host)
	}
	a.name = strings.Join(names, ",")
	return a, nil
}

// subject is the subject of a bus.
func subject(prefix string) (string, error) {
	for word := range strings.SplitSeq(prefix, ".") {
		if word == "" || strings.ContainsFunc(word, strange) {
			return "", errPrefix
		}
	}
	return prefix + ".feed", nil
}

func strange(r rune) bool {
	letter := (r|0x20 >= 'a' && r|0x20 <= 'z') || (r >= '0' && r <= '9')
	return !letter && r != '_' && r != '-'
}
