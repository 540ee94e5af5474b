package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serveTestProcess is the server of TestProcess, with everything printing that
// it can.
func serveTestProcess() error {
	out, err := GuardStdout()
	if err != nil {
		return err
	}
	noise := func() {
		fmt.Println("a library prints")
		fmt.Fprintln(os.Stdout, "another one")
		println("the runtime too") //nolint:forbidigo // this is the point
		cmd := exec.Command("sh", "-c", "echo a child; echo to descriptor 3 >&3")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_ = cmd.Run()
	}
	noise()
	f, err := makeFixture(nil, Tool{Name: "noise", Call: func(context.Context, json.RawMessage) (ToolResult, error) {
		noise()
		return ToolResult{Text: "done"}, nil
	}})
	if err != nil {
		return err
	}
	return f.ServeStdio(context.Background(), os.Stdin, out)
}

// M-8, B-096, B-097: a real process. Whatever prints, standard output has frames
// only; when standard input ends it exits with 0 at once, with a listen open.
func TestProcess(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "OSSICLE_TEST_STDIO=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	next := func() message {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("read: %v; stderr:\n%s", err, stderr.String())
		}
		return parseMessage(t, line)
	}
	fmt.Fprintln(in, listenCall("1", "memo://notes"))
	if m := next(); m.subscription() != "1" {
		t.Errorf("acknowledgement: %s", m)
	}
	fmt.Fprintln(in, modernCall("2", "tools/call", `"name":"noise"`))
	if m := next(); string(m.ID) != "2" || m.Error != nil {
		t.Errorf("tool: %s", m)
	}
	started := time.Now()
	_ = in.Close()
	if rest, err := lines.ReadString('\n'); rest != "" || err == nil {
		t.Errorf("after the end of input: %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v; stderr:\n%s", err, stderr.String())
	}
	if d := time.Since(started); d > 20*time.Second { // a race detector alone takes one
		t.Errorf("the exit took %v", d)
	}
	for _, want := range []string{"a library prints", "another one", "the runtime too", "a child"} {
		if strings.Count(stderr.String(), want) != 2 {
			t.Errorf("standard error lacks %q:\n%s", want, stderr.String())
		}
	}
}
