package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/access"
)

// callSignalTool calls a tool of the agent that the daemon serves at a path, and
// returns the status and the text of the result.
func (s *served) callSignalTool(token, session, agent, tool, args string) (status int, text string) {
	s.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/mcp/signals/"+session+"/"+agent, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	resp, err := apiClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var rpc struct {
		Result struct {
			Content []struct{ Text string }
		}
	}
	data := string(answer)
	if _, rest, ok := strings.Cut(data, "data: "); ok {
		data, _, _ = strings.Cut(rest, "\n")
	}
	if json.Unmarshal([]byte(data), &rpc) == nil && len(rpc.Result.Content) > 0 {
		return resp.StatusCode, rpc.Result.Content[0].Text
	}
	return resp.StatusCode, string(answer)
}

// The daemon serves each agent of a session at a path of its own, to whoever has the
// right to be that agent.
//
// S-7, S-9.
func TestSignalsOfTheDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, testAgents(t, dir), dir, "")
	call := func(agent, tool, args string) string {
		t.Helper()
		status, text := s.callSignalTool(s.token, collaboration, agent, tool, args)
		if status != http.StatusOK {
			t.Errorf("%s as %s: %d %s", tool, agent, status, text)
		}
		return text
	}
	call("b", "list_agents", `{}`)
	if got := call("a", "signal", `{"to":"b","content":"hello"}`); !strings.Contains(got, `"recipients":["b"]`) {
		t.Errorf("%s", got)
	}
	if got := call("b", "read_signals", `{}`); !strings.Contains(got, `"sender":"a"`) {
		t.Errorf("%s", got)
	}
	for path, want := range map[string]int{
		"not-a-session/a":             http.StatusBadRequest,
		collaboration + "/a..b":       http.StatusBadRequest,
		collaboration + "/%2e%2e%2fa": http.StatusBadRequest,
	} {
		session, agent, _ := strings.Cut(path, "/")
		if status, text := s.callSignalTool(s.token, session, agent, "list_agents", `{}`); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := s.callSignalTool("wrong", collaboration, "a", "list_agents", `{}`); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, text)
	}
}

// S-7: a token is that of one agent and those below it, or of the person.
func TestMayBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		sessions []string
		agent    string
		ok       bool
	}{
		{"lead", []string{collaboration}, "lead", true},
		{"lead", []string{collaboration}, "lead.critic", true},
		{"lead", []string{collaboration}, "leader", false},
		{"lead", []string{collaboration}, "other", false},
		{"lead.critic", []string{collaboration}, "lead", false},
		{"lead", []string{"another"}, "lead", false},
		{"lead", nil, "lead", false},
		{"me", []string{"*"}, "anybody", true},
	} {
		err := mayBe(&access.Principal{Name: c.name, Rights: access.Rights{Sessions: c.sessions}}, collaboration, c.agent)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, fmt.Sprint(err))
		}
	}
}
