package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/sandbox"
)

// newLocal makes the driver of a profile on this machine.
func (f *Fleet) newLocal(ctx context.Context, p *config.Sandbox) (Driver, error) {
	program, err := f.program()
	if err != nil {
		return nil, err
	}
	tier, plain := sandbox.Tier(p.Tier), p.Driver == config.DriverPlain
	if plain {
		tier = sandbox.Plain
	}
	local, err := sandbox.NewLocal(ctx, filepath.Join(f.dir, "boxes-"+p.Name), f.socket, program, &sandbox.LocalOptions{
		Logger: f.log, Tier: tier, AllowPlain: plain, Audit: f.trail,
		Workspace: int64(p.Limits.Disk), Memory: int64(p.Limits.Memory), Processes: p.Limits.Processes,
		Exited: func(session string, e sandbox.Exit) { f.exited(session, exitDetail(e)) },
	})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("make sandbox: %w", context.Cause(ctx))
	case errors.Is(err, sandbox.ErrNoSandbox):
		return nil, fmt.Errorf("%w: %w; install bubblewrap (bwrap), util-linux (prlimit) and bash, and allow user namespaces", ErrNoSandbox, err)
	case err != nil:
		return nil, err
	}
	return localDriver{local, "unix://" + f.socket}, nil
}

// localDriver makes sandboxes on this machine.
type localDriver struct {
	*sandbox.Local

	control string
}

// Traits implements Driver.
func (d localDriver) Traits() Traits {
	probe := d.Probe()
	return Traits{Tier: string(probe.Tier), Reason: probe.Reason, About: probe.String(), Gaps: probe.Gaps, Control: d.control}
}

// Create implements Driver.
func (d localDriver) Create(ctx context.Context, s Spec) error {
	return d.Local.Create(ctx, sandbox.Spec{Session: s.Session, Env: s.Env, Token: s.Token})
}

// program is the worker that sandboxes of this machine run, where their user can
// reach it.
func (f *Fleet) program() ([]string, error) {
	program := f.o.Program
	if program == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find our own program: %w", err)
		}
		program = []string{self, "worker", "--output", strconv.Itoa(outputKept)}
	}
	path, err := reachable(program[0], filepath.Join(f.dir, "worker"))
	if err != nil {
		return nil, fmt.Errorf("give the sandbox its program: %w", err)
	}
	return append([]string{path}, program[1:]...), nil
}

// exitDetail says how a worker ended; what it wrote is from the sandbox.
func exitDetail(e sandbox.Exit) string {
	detail := e.String()
	if text := strings.TrimSpace(e.Stderr); text != "" {
		detail += fmt.Sprintf(": %.300q", text)
	}
	return detail
}

// reachable is the program where the user of sandboxes can run it: itself, or a
// copy.
func reachable(program, copied string) (string, error) {
	info, err := os.Stat(program)
	if err != nil || os.Geteuid() != 0 || (passable(filepath.Dir(program)) && info.Mode()&0o005 == 0o005) {
		return program, err
	}
	if _, err := os.Stat(copied); err == nil { // for another profile
		return copied, nil
	}
	in, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(copied, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return copied, errors.Join(err, out.Chmod(0o755), out.Close())
}

// ours reports whether a file is our user's.
func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
