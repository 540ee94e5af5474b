package worker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
)

// Names of the variables that start a worker. The names of the ceilings and of
// the storage scope are ours; the contract gives none.
const (
	EnvSessionID     = "SESSION_ID"
	EnvControlURL    = "CONTROL_URL"
	EnvToolAllowlist = "TOOL_ALLOWLIST"
	EnvTokenFile     = "WORKER_TOKEN_FILE"
	EnvToken         = "WORKER_TOKEN"
	EnvBudgets       = "AGENTFY_BUDGETS"
	EnvStorageScope  = "STORAGE_SCOPE"
)

// maxToken bounds a token file, in bytes.
const maxToken = 16 << 10

// ConfigError is a defect of the environment of a worker. It exits 78: starting
// it again changes nothing.
type ConfigError struct{ Reason string }

// Error implements error.
func (e *ConfigError) Error() string { return "configure worker: " + e.Reason }

// Environment is what a sandbox tells the worker at its start.
type Environment struct {
	SessionID    string // echoed to the host, which compares it with the token
	ControlURL   string
	Tools        []string // the tools that may be offered; nil is all
	StorageScope string
	Budgets      Budgets // zero fields: the environment says nothing
	// Token returns the bearer token. It is asked for each dial, so a rotated file
	// is seen.
	Token func() (string, error)
}

// ReadEnvironment reads the variables through lookup, for instance
// os.LookupEnv. Errors are [ConfigError]; they name variables, never values of
// secrets.
func ReadEnvironment(lookup func(string) (string, bool)) (Environment, error) {
	get := func(name string) string {
		v, _ := lookup(name)
		return v
	}
	e := Environment{SessionID: get(EnvSessionID), ControlURL: get(EnvControlURL), StorageScope: get(EnvStorageScope)}
	if e.SessionID == "" {
		return Environment{}, &ConfigError{EnvSessionID + " is not set"}
	}
	if err := checkControlURL(e.ControlURL); err != nil {
		return Environment{}, &ConfigError{EnvControlURL + ": " + err.Error()}
	}
	if list, ok := lookup(EnvToolAllowlist); ok {
		e.Tools = splitList(list)
	}
	if text := get(EnvBudgets); text != "" {
		if err := json.Unmarshal([]byte(text), &e.Budgets); err != nil {
			return Environment{}, &ConfigError{EnvBudgets + ": " + err.Error()}
		}
	}
	var err error
	e.Token, err = tokenSource(lookup)
	return e, err
}

func splitList(list string) []string {
	names := []string{}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// checkControlURL allows plain connections only where nobody is between: the
// token is on the upgrade.
func checkControlURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return errors.New("is not set")
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme == "unix":
		return nil
	case u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("wants a host, and neither user nor fragment")
	case u.Scheme == "https", u.Scheme == "wss":
		return nil
	case u.Scheme == "http", u.Scheme == "ws":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback()) {
			return nil
		}
		return errors.New("is not encrypted; only wss and https may leave this machine")
	}
	return fmt.Errorf("has the scheme %q; use wss", u.Scheme)
}

// tokenSource applies the rule of one source: a half-migrated manifest must not
// leave the token in the environment.
func tokenSource(lookup func(string) (string, bool)) (func() (string, error), error) {
	file, hasFile := lookup(EnvTokenFile)
	value, hasValue := lookup(EnvToken)
	switch {
	case hasFile && hasValue:
		return nil, &ConfigError{"both " + EnvTokenFile + " and " + EnvToken + " are set; set only " + EnvTokenFile}
	case hasFile:
		if _, err := readToken(file); err != nil {
			return nil, err
		}
		return func() (string, error) { return readToken(file) }, nil
	case hasValue:
		value = strings.TrimRight(value, "\r\n")
		if !validToken(value) {
			return nil, &ConfigError{EnvToken + " holds no token"}
		}
		return func() (string, error) { return value, nil }, nil
	}
	return nil, &ConfigError{"neither " + EnvTokenFile + " nor " + EnvToken + " is set"}
}

func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxToken) {
		return "", &ConfigError{EnvTokenFile + " is not a small file"}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return "", &ConfigError{EnvTokenFile + " cannot be read: " + err.Error()}
	}
	token := strings.TrimRight(string(data), "\r\n")
	if !validToken(token) {
		return "", &ConfigError{EnvTokenFile + " holds no token"}
	}
	return token, nil
}

// validToken reports whether a token can stand in a header.
func validToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
