package pty

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is a CLI agent that is known, for its way to be given MCP servers and to be
// interrupted.
type Kind string

// Kinds. Other programs run in a terminal too, without MCP servers of ours.
const (
	Claude   Kind = "claude"
	Codex    Kind = "codex"
	Gemini   Kind = "gemini"
	OpenCode Kind = "opencode"
	Qwen     Kind = "qwen"
	Other    Kind = "other"
)

// Kinds lists the kinds with a strategy.
func Kinds() []Kind { return []Kind{Claude, Codex, Gemini, OpenCode, Qwen} }

// ErrKind means that a name is that of no kind.
var ErrKind = errors.New("no such kind of agent")

// ParseKind reads the name of a kind; empty is no kind, to be found by the command.
func ParseKind(name string) (Kind, error) {
	k := Kind(name)
	if name == "" || k == Other || slices.Contains(Kinds(), k) {
		return k, nil
	}
	return "", fmt.Errorf("%w: %q (one of %v, or %s)", ErrKind, name, Kinds(), Other)
}

// KindOf finds the kind of a command by the base name of its program.
func KindOf(command []string) Kind {
	if len(command) == 0 {
		return Other
	}
	name := filepath.Base(command[0])
	if k := Kind(strings.TrimSuffix(name, filepath.Ext(name))); slices.Contains(Kinds(), k) {
		return k
	}
	return Other
}

// interrupt is the key that ends what the program is doing.
func (k Kind) interrupt() []byte {
	if k == Other || k == "" {
		return []byte{keyInterrupt}
	}
	return []byte{keyEscape}
}
