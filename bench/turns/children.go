package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/mockagent"
)

// What this program does as its own child.
const (
	agentChild = "mock-agent"
	pipeChild  = "bare-pipe"
)

var children = map[string]func() error{agentChild: beAgent, pipeChild: bePipe}

// beAgent is an agent that says on standard error when it has read a prompt.
func beAgent() error {
	opts, err := mockagent.ParseModes([]string{"nomcp"})
	if err != nil {
		return err
	}
	return mockagent.Run(context.Background(), &tellingReader{os.Stdin}, os.Stdout, os.Stderr, opts)
}

type tellingReader struct{ io.ReadCloser }

// Read implements io.Reader.
func (r *tellingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if bytes.Contains(p[:n], promptMethod) {
		_, _ = fmt.Fprintf(os.Stderr, "%s%d\n", readMark, time.Now().UnixNano())
	}
	return n, err
}

// bePipe answers every line with the time at which it was read.
func bePipe() error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if _, err := fmt.Println(time.Now().UnixNano()); err != nil {
			return err
		}
	}
	return in.Err()
}

// pipe is a child that does nothing but read.
type pipe struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newPipe() (*pipe, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &pipe{cmd: exec.Command(self, pipeChild)}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// send writes a line of that length; it returns when the write had returned, and
// when the child had read it.
func (p *pipe) send(length int) (written, read time.Duration, err error) {
	line := append(bytes.Repeat([]byte("x"), length), '\n')
	began := time.Now()
	if _, err := p.in.Write(line); err != nil {
		return 0, 0, err
	}
	written = time.Since(began)
	answer, err := p.out.ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(answer), 10, 64)
	return written, time.Unix(0, ns).Sub(began), err
}

func (p *pipe) close() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}
