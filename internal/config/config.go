// Package config reads what a person can set: one YAML file, the environment,
// and the mcpServers JSON of other tools. Flags are the command line's affair;
// they win over the environment, which wins over the file.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxFile bounds a configuration file, in bytes.
const MaxFile = 1 << 20

// Environment variables.
const (
	EnvFile      = "OSSICLE_CONFIG"       // path of the file
	EnvHome      = "OSSICLE_HOME"         // data directory
	EnvLogLevel  = "OSSICLE_LOG_LEVEL"    // debug, info, warn or error
	EnvLogFormat = "OSSICLE_LOG_FORMAT"   // text or json
	EnvMonty     = "OSSICLE_MONTY"        // path of the Python interpreter
	EnvStore     = "OSSICLE_STORE"        // store of the feed; may hold a password
	EnvDirect    = "OSSICLE_STORE_DIRECT" // the store itself where OSSICLE_STORE leads to a pooler
	EnvBus       = "OSSICLE_BUS"          // bus of the feed; may hold a password
)

// Config is everything that can be set. Its zero value is not useful; start
// from Default.
type Config struct {
	// Servers is the text of the mcpServers object as other tools write it, as
	// JSON; empty when the file has none. The pool parses it.
	Servers []byte
	Watch   Watch
	Python  Python
	Log     Log
	Feed    Feed
	Signals Signals
	Gateway Gateway
	// Profiles are named ways to run an agent.
	Profiles map[string]Profile
	// Sandboxes are the kinds of sandboxes that the file names; see Sandbox.
	Sandboxes map[string]Sandbox
	// Home is the data directory: the token file and the stores.
	Home string
}

// Watch holds the limits of the watch engine (specification W-160 to W-166).
// Zero means the engine's default.
type Watch struct {
	Watches     int           `yaml:"watches"`      // watches at a time
	Quiet       time.Duration `yaml:"quiet"`        // silence that ends a burst
	MaxWait     time.Duration `yaml:"max_wait"`     // longest wait from a burst's first line
	Lines       int           `yaml:"lines"`        // lines of a notice
	Events      int           `yaml:"events"`       // events of one pass
	FilterTime  time.Duration `yaml:"filter_time"`  // one filter run
	FilterCalls int           `yaml:"filter_calls"` // tool calls of one filter run
	LegacyWatch bool          `yaml:"legacy_watch"` // also watch servers before 2026-07-28
	// FilterTools are further tools that filters may call, as "server/tool",
	// beside those that say of themselves that they only read.
	FilterTools []string `yaml:"filter_tools"`
}

// Python configures the interpreter of filters.
type Python struct {
	Monty     string `yaml:"monty"`     // path of the interpreter; empty looks for it
	Processes int    `yaml:"processes"` // interpreter processes at the most
}

// Log configures the log on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// file is the shape of the YAML file. Unknown keys are errors.
type file struct {
	Servers  yaml.Node          `yaml:"mcpServers"`
	Watch    Watch              `yaml:"watch"`
	Python   Python             `yaml:"python"`
	Log      Log                `yaml:"log"`
	Feed     Feed               `yaml:"feed"`
	Signals  Signals            `yaml:"signals"`
	Gateway  Gateway            `yaml:"gateway"`
	Profiles map[string]profile `yaml:"profiles"`

	Sandboxes map[string]sandbox `yaml:"sandboxes"`
}

// Default returns the configuration without a file and an environment.
func Default() *Config {
	return &Config{Log: Log{Level: "info", Format: "text"}}
}

// Load reads the file at path, then the environment, and validates. An empty
// path means $OSSICLE_CONFIG, else ossicle/config.yaml in the user's
// configuration directory if it exists. getenv is os.LookupEnv outside tests.
//
// Errors name the file and the line.
func Load(path string, getenv func(string) (string, bool)) (*Config, error) {
	c := Default()
	explicit := path != ""
	if !explicit {
		path, explicit = getenv(EnvFile)
	}
	if path == "" {
		path = defaultFile(getenv)
	}
	if path != "" {
		err := c.readFile(path)
		if err != nil && (explicit || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	c.readEnvironment(getenv)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	return c, nil
}

func (c *Config) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return err
	}
	if len(data) > MaxFile {
		return fmt.Errorf("%s: larger than %d bytes", path, MaxFile)
	}
	if err := c.parse(data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (c *Config) parse(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	f := file{Watch: c.Watch, Python: c.Python, Log: c.Log, Feed: c.Feed, Signals: c.Signals, Gateway: c.Gateway}
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document")
	}
	c.Watch, c.Python, c.Log, c.Feed, c.Signals, c.Gateway = f.Watch, f.Python, f.Log, f.Feed, f.Signals, f.Gateway
	var (
		err  error
		root yaml.Node
	)
	_ = yaml.Unmarshal(data, &root) // as above, for the lines
	if c.Sandboxes, err = sandboxes(f.Sandboxes, &root); err != nil {
		return err
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	if c.Profiles, err = profiles(f.Profiles); err != nil || f.Servers.IsZero() {
		return err
	}
	c.Servers, err = servers(&f.Servers)
	return err
}

func (c *Config) readEnvironment(getenv func(string) (string, bool)) {
	set := func(to *string, name string) {
		if v, ok := getenv(name); ok && v != "" {
			*to = v
		}
	}
	set(&c.Log.Level, EnvLogLevel)
	set(&c.Log.Format, EnvLogFormat)
	set(&c.Python.Monty, EnvMonty)
	set(&c.Feed.Store, EnvStore)
	set(&c.Feed.Direct, EnvDirect)
	set(&c.Feed.Bus, EnvBus)
	c.Home = home(getenv)
}

// Validate says what is wrong, all of it at once.
func (c *Config) Validate() error {
	var errs []error
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		errs = append(errs, fmt.Errorf("log.level %q: use debug, info, warn or error", c.Log.Level))
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		errs = append(errs, fmt.Errorf("log.format %q: use text or json", c.Log.Format))
	}
	for name, n := range map[string]int{
		"watch.watches": c.Watch.Watches, "watch.lines": c.Watch.Lines, "watch.events": c.Watch.Events,
		"watch.filter_calls": c.Watch.FilterCalls, "python.processes": c.Python.Processes,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: use a positive number, or leave it out", name, n))
		}
	}
	for name, d := range map[string]time.Duration{
		"watch.quiet": c.Watch.Quiet, "watch.max_wait": c.Watch.MaxWait, "watch.filter_time": c.Watch.FilterTime,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s %s: use a positive duration such as 3s, or leave it out", name, d))
		}
	}
	return errors.Join(append(errs, c.Feed.check(), c.Signals.check(), c.Gateway.check(), c.checkSandboxes())...)
}

func defaultFile(getenv func(string) (string, bool)) string {
	if dir, ok := getenv("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ossicle", "config.yaml")
	}
	if dir, ok := getenv("HOME"); ok && dir != "" {
		return filepath.Join(dir, ".config", "ossicle", "config.yaml")
	}
	return ""
}

// home is the data directory: $OSSICLE_HOME, else by the XDG rules.
func home(getenv func(string) (string, bool)) string {
	if dir, ok := getenv(EnvHome); ok && dir != "" {
		return dir
	}
	if dir, ok := getenv("XDG_DATA_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ossicle")
	}
	if dir, ok := getenv("HOME"); ok && dir != "" {
		return filepath.Join(dir, ".local", "share", "ossicle")
	}
	return filepath.Join(os.TempDir(), "ossicle")
}
