package wake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/notice"
)

const (
	// versionTime bounds "claude --version".
	versionTime = 20 * time.Second
	// channelFlag makes "ossicle mcp" a channel.
	channelFlag = "--claude-channel"
	// managedSettings is where an organisation's settings are on Linux.
	managedSettings = "/etc/claude-code/managed-settings.json"
)

// firstChannels is the first version of Claude Code that has channels.
var firstChannels = [3]int{2, 1, 80}

// otherProviders are the variables that make Claude Code use a provider whose
// sessions take no channels.
var otherProviders = []string{
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE",
	"CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
}

// ClaudeSetup says where CheckClaudeChannel looks. Zero fields take the defaults.
type ClaudeSetup struct {
	Command string // Claude Code; empty is "claude" on the path
	Home    string // the person's directory
	Project string // the directory in which Claude Code is started
	Managed string // settings of the organisation; empty is where they are on Linux
	Getenv  func(string) (string, bool)
}

// CheckClaudeChannel says what keeps notices from a running Claude Code, as far
// as its installation and its files show it: its version and provider, whether
// a server of its configuration is our channel, what an organisation allows.
// Whether Anthropic has channels switched on for a login, nothing here tells.
func CheckClaudeChannel(ctx context.Context, s ClaudeSetup) []notice.Check {
	if s.Command == "" {
		s.Command = "claude"
	}
	if s.Managed == "" {
		s.Managed = managedSettings
	}
	checks := []notice.Check{s.checkVersion(ctx), s.checkProvider()}
	checks = append(checks, s.checkDeclared()...)
	checks = append(checks, s.checkPolicy())
	return append(checks, notice.Check{
		Name: "feature", OK: true,
		Cause: "not to be seen from here: whether Anthropic has channels switched on for the login; claude --debug-file FILE says \"Channel notifications skipped\" and why",
	})
}

var threeNumbers = regexp.MustCompile(`(\d{1,6})\.(\d{1,6})\.(\d{1,6})`)

func (s *ClaudeSetup) checkVersion(ctx context.Context) notice.Check {
	const name, fix = "version", "install Claude Code 2.1.80 or newer"
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.Command, "--version").Output()
	if err != nil {
		return bad(name, "ask "+s.Command+" for its version: "+err.Error(), fix)
	}
	m := threeNumbers.FindStringSubmatch(string(out))
	if m == nil {
		return bad(name, fmt.Sprintf("%s says %.100q, which is no version", s.Command, out), fix)
	}
	var v [3]int
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // six digits
	}
	if slices.Compare(v[:], firstChannels[:]) < 0 {
		return bad(name, m[0]+" has no channels", fix)
	}
	return ok(name + ": " + m[0])
}

func (s *ClaudeSetup) checkProvider() notice.Check {
	for _, name := range otherProviders {
		if v, set := s.Getenv(name); set && v != "" && v != "0" && !strings.EqualFold(v, "false") {
			return bad("provider", name+" is set: sessions of other providers take no channels", "use a login of Anthropic, or another adapter")
		}
	}
	return ok("provider")
}

// claudeServer is one MCP server of Claude Code's configuration.
type claudeServer struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

type claudeServers struct {
	Servers  map[string]claudeServer  `json:"mcpServers"`
	Projects map[string]claudeServers `json:"projects"`
}

// checkDeclared finds the server that is our channel among the configured ones.
func (s *ClaudeSetup) checkDeclared() []notice.Check {
	var checks []notice.Check
	var paths []string
	declared, plain := "", ""
	for _, path := range []string{filepath.Join(s.Home, ".claude.json"), filepath.Join(s.Project, ".mcp.json")} {
		paths = append(paths, path)
		var c claudeServers
		switch err := readSettings(path, &c); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			checks = append(checks, bad("configuration", path+": "+err.Error(), "mend the file"))
			continue
		}
		for _, servers := range []map[string]claudeServer{c.Servers, c.Projects[s.Project].Servers} {
			for name, server := range servers {
				switch {
				case !server.ours():
				case slices.Contains(server.Args, channelFlag):
					declared = name
					checks = append(checks, checkCommand(name, server.Command))
				default:
					plain = name
				}
			}
		}
	}
	switch {
	case declared != "":
		return append(checks, notice.Check{Name: "session", OK: true, Cause: fmt.Sprintf(
			"Claude Code takes it only when it is started with --dangerously-load-development-channels server:%s", notice.Plain(declared, 100))})
	case plain != "":
		return append(checks, bad("server", fmt.Sprintf("%q runs ossicle mcp without %s", plain, channelFlag), "add "+channelFlag+" to its arguments"))
	}
	return append(checks, bad("server", "none in "+strings.Join(paths, ", ")+" runs ossicle mcp "+channelFlag,
		"claude mcp add ears -- ossicle mcp --agent NAME "+channelFlag))
}

// ours reports whether the server is "ossicle mcp" over stdio.
func (s claudeServer) ours() bool {
	if s.Type != "" && s.Type != "stdio" {
		return false
	}
	return strings.Contains(filepath.Base(s.Command), "ossicle") && slices.Contains(s.Args, "mcp")
}

func checkCommand(name, command string) notice.Check {
	if _, err := exec.LookPath(command); err != nil {
		return bad("server "+name, err.Error(), "give the whole path of ossicle in its configuration")
	}
	return ok("server " + notice.Plain(name, 100))
}

// checkPolicy reads what an organisation allows: where it has settings, channels
// must be among them.
func (s *ClaudeSetup) checkPolicy() notice.Check {
	var policy struct {
		Channels bool `json:"channelsEnabled"`
	}
	switch err := readSettings(s.Managed, &policy); {
	case errors.Is(err, fs.ErrNotExist):
		return ok("organisation: it has no settings here")
	case err != nil:
		return bad("organisation", s.Managed+": "+err.Error(), "ask the administrator")
	case !policy.Channels:
		return bad("organisation", s.Managed+" does not set channelsEnabled", "ask the administrator to set it to true")
	}
	return ok("organisation")
}

// readSettings reads a file of JSON that other programs write: bounded, and
// without regard to members that we do not know.
func readSettings(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSettings))
	if err != nil {
		return err
	}
	if json.Unmarshal(b, v) != nil {
		return errors.New("it cannot be read as settings")
	}
	return nil
}
