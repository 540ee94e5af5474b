package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// serverFlags say which MCP servers a command talks to. They add to those of
// the configuration file.
type serverFlags struct {
	stdio     []string
	http      []string
	headers   []string
	tokenFile string
	configs   []string
	oauth     bool
}

func (f *serverFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.stdio, "mcp-stdio", nil, "command of an MCP server over stdio, in one argument (repeatable)")
	flags.StringArrayVar(&f.http, "mcp-http", nil, "URL of an MCP server over Streamable HTTP (repeatable)")
	flags.StringArrayVar(&f.headers, "mcp-header", nil, "'Name: value' for every --mcp-http server (repeatable)")
	flags.StringVar(&f.tokenFile, "mcp-token-file", "", "file with the bearer token for every --mcp-http server")
	flags.BoolVar(&f.oauth, "mcp-oauth", false, "authorize at servers that ask for it, in a browser: the address is shown")
	flags.StringArrayVar(&f.configs, "mcp-config", nil, "file with an mcpServers object, as other tools write it (repeatable)")
}

var errNoServers = errors.New("no MCP server: give --mcp-stdio, --mcp-http or --mcp-config, or name servers in the configuration file")

// specs puts together the servers in order: flags first, then the files named
// by flags, then the configuration file.
func (f *serverFlags) specs(e *env, c *config.Config) ([]mcpclient.Spec, error) {
	var all []mcpclient.Spec
	for _, line := range f.stdio {
		spec, err := stdioSpec(line, e.getenv)
		if err != nil {
			return nil, &usageError{err}
		}
		all = append(all, spec)
	}
	headers, err := f.httpHeaders()
	if err != nil {
		return nil, &usageError{err}
	}
	for _, u := range f.http {
		if u == "" {
			return nil, &usageError{errors.New("read --mcp-http: the address is empty")}
		}
		all = append(all, mcpclient.Spec{Name: nameOfURL(u), URL: u, Headers: headers})
	}
	for _, path := range f.configs {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, &usageError{fmt.Errorf("read --mcp-config: %w", err)}
		}
		servers, err := mcpclient.ParseServers(data, e.getenv)
		if err != nil {
			return nil, &usageError{fmt.Errorf("read --mcp-config %s: %w", path, err)}
		}
		all = append(all, servers...)
	}
	if len(c.Servers) > 0 {
		servers, err := mcpclient.ParseServers(c.Servers, e.getenv)
		if err != nil {
			return nil, &usageError{fmt.Errorf("read mcpServers of the configuration file: %w", err)}
		}
		all = append(all, servers...)
	}
	if len(all) == 0 {
		return nil, &usageError{errNoServers}
	}
	return distinct(all), nil
}

// distinct numbers names that come twice, so that one flag can be repeated.
func distinct(specs []mcpclient.Spec) []mcpclient.Spec {
	seen := map[string]bool{}
	for i := range specs {
		name := specs[i].Name
		for n := 2; seen[specs[i].Name]; n++ {
			specs[i].Name = fmt.Sprintf("%s-%d", name, n)
		}
		seen[specs[i].Name] = true
	}
	return specs
}

// stdioSpec splits a command line into words as a shell does. It runs nothing:
// command substitution is an error.
func stdioSpec(line string, getenv func(string) (string, bool)) (mcpclient.Spec, error) {
	words, err := shell.Fields(line, func(name string) string {
		v, _ := getenv(name)
		return v
	})
	if err != nil {
		return mcpclient.Spec{}, fmt.Errorf("read --mcp-stdio %q: %w", line, err)
	}
	if len(words) == 0 {
		return mcpclient.Spec{}, errors.New("read --mcp-stdio: the command is empty")
	}
	name := strings.TrimSuffix(filepath.Base(words[0]), filepath.Ext(words[0]))
	return mcpclient.Spec{Name: name, Command: words[0], Args: words[1:]}, nil
}

func nameOfURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "http"
	}
	return u.Host
}

func (f *serverFlags) httpHeaders() (map[string]string, error) {
	headers := map[string]string{}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, errors.New("read --mcp-header: write it as 'Name: value'")
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if f.tokenFile != "" {
		token, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read --mcp-token-file: %w", err)
		}
		headers["Authorization"] = "Bearer " + strings.TrimSpace(string(token))
	}
	return headers, nil
}

// withClient runs do with a client of the servers that the flags name, and
// takes the client down after it, also when ctx has ended.
func (f *serverFlags) withClient(ctx context.Context, e *env, o app.ClientOptions, adjust func(*config.Config), do func(*app.Client) error) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	if adjust != nil {
		adjust(c)
	}
	specs, err := f.specs(e, c)
	if err != nil {
		return err
	}
	o.Logger = e.log
	if f.oauth {
		o.Authorize = e.showAuthorization
	}
	client, err := app.NewClient(c, specs, &o)
	if err != nil {
		return &usageError{err}
	}
	err = do(client)
	return errors.Join(err, client.Close(context.WithoutCancel(ctx)))
}

// showAuthorization asks the person to authorize us at a server.
func (e *env) showAuthorization(server, url string) {
	_, _ = fmt.Fprintf(e.Err, "Server %s asks for authorization. Open:\n\n  %s\n\n", printable(server), printable(url))
}
