package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// pageLink is where the page is. On a loopback address the link lets in whoever
// reads it, so it is printed on a terminal and nowhere else: what goes to a file or
// a journal is kept, and read by others.
func pageLink(address, tokenFile string, terminal bool) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("print link: %w", err)
	}
	u.Path = "/"
	ip, _ := netip.ParseAddr(u.Hostname()) // a name is no loopback address
	switch {
	case !ip.IsLoopback():
		return fmt.Sprintf("page: %s (it asks for a token of 'ossicle token create')", u), nil
	case !terminal:
		return fmt.Sprintf("page: %s (it asks for the token in %s)", u, tokenFile), nil
	}
	token, err := httpserver.ReadTokenFile(tokenFile)
	if err != nil {
		return "", fmt.Errorf("print link: %w", err)
	}
	u.Fragment = "token=" + token // a fragment is sent to nobody
	return "page: " + u.String(), nil
}

// printServing tells where the daemon is, and the way into its page.
func (e *env) printServing(data string) func(address string) error {
	return func(address string) error {
		if e.json {
			return writeJSON(e.Out, struct {
				URL string `json:"url"`
			}{address})
		}
		c, err := e.load()
		if err != nil {
			return err
		}
		page, err := pageLink(address, filepath.Join(cmp.Or(data, c.Home), app.TokenName), isTerminal(e.Out))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Out, "serving the feed and sessions at %s\n%s\n", address, page)
		return err
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
