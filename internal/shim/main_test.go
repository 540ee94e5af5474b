package shim_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/shim"
)

// helperEnv makes the test binary one of the programs of the tests.
const helperEnv = "OSSICLE_SHIM_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helper(name))
	}
	goleak.VerifyTestMain(m)
}

func helper(name string) int {
	switch name {
	case "copy":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "lines": // answers each line as soon as it is there
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return 0
			}
			_, _ = os.Stdout.Write(line)
		}
	case "burst":
		fmt.Print(strings.Repeat("x", 60<<10))
	case "words": // last ones, and a descendant that holds the pipes
		sleeper := exec.Command("setsid", "sleep", "20")
		sleeper.Stdout = os.Stdout
		_ = sleeper.Start()
		fmt.Fprint(os.Stderr, "bad weather\n")
		fmt.Print("out\n")
		return 7
	case "shut": // hears nothing any more, and goes a moment later
		_ = os.Stdin.Close()
		fmt.Print("out\n")
		time.Sleep(200 * time.Millisecond)
		return 7
	case "deaf":
		signal.Ignore(os.Interrupt)
		time.Sleep(time.Hour)
	case "mcp":
		s := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(_ context.Context, _ *mcp.CallToolRequest, a map[string]any) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(a)}}}, nil, nil
		})
		_ = s.Run(context.Background(), &mcp.StdioTransport{})
	case "relay": // a shim in a process of its own
		o := observe.New(func(attach.Evidence) {}, nil)
		_ = shim.Stdio(context.Background(), shim.StdioOptions{
			Args: []string{os.Args[0]}, Env: append(os.Environ(), helperEnv+"=lines"), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Observer: o,
		})
		o.Close()
	}
	return 0
}
