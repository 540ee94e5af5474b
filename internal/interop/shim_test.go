package interop

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ossicle/ossicle/attach"
)

// shimHTTP relays the server of a URL and returns the URL that stands for it. end ends
// the relay, whose evidence is all written then.
func shimHTTP(t *testing.T, target, evidence string) (url string, end func()) {
	t.Helper()
	c := start(t, nil, program, "shim", "--url", target, "--evidence", evidence, "--name", "m", "--json")
	var ready struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal([]byte(c.await(`"url"`)), &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URL, func() {
		t.Helper()
		if err := syscall.Kill(c.p.Pid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.finish(); err != nil {
			t.Errorf("%v: %s", err, c.output())
		}
	}
}

// The official suite sees no difference between a server and the relay in front
// of it, in both eras.
//
// M-19.
func TestConformanceThroughShim(t *testing.T) {
	t.Parallel()
	url, _ := shimHTTP(t, conformanceFixture(t), filepath.Join(t.TempDir(), "evidence"))
	conforms(t, url)
}

// What a host does with servers that are not ours is seen through the relay, on a
// pipe and on HTTP: a report follows from it.
//
// M-19, A-5.
func TestShimsWriteEvidence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	onPipe, onHTTP := filepath.Join(dir, "pipe"), filepath.Join(dir, "http")
	must(t, "call", "memo_set", "key=k", "value=kanarie-hunter2", "--mcp-stdio", program+" shim --name m --evidence "+onPipe+" -- "+program+" memo")
	url, end := shimHTTP(t, memoHTTP(t), onHTTP)
	must(t, "call", "memo_set", "key=k", "value=kanarie-hunter2", "--mcp-http", url)
	must(t, "resources", "--mcp-http", url)
	end()
	for name, path := range map[string]string{"pipe": onPipe, "http": onHTTP} {
		r := replay(t, path)
		s := r.CurrentAttempt().Server("m")
		if s == nil || s.LastTool != "memo_set" || s.Status.Tone() == attach.Red || s.Client == nil || s.Client.Name == "" || s.FailedAt.IsZero() == false {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// replay makes a report of an evidence file.
func replay(t *testing.T, path string) attach.Report {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var r attach.Report
	in := bufio.NewScanner(f)
	for in.Scan() {
		var e attach.Evidence
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if r.Current == "" {
			if r, err = r.Begin(attach.Start{SessionID: "s", ExecutionID: "x", AttemptID: "a", StartedAt: e.OccurredAt}); err != nil {
				t.Fatal(err)
			}
		}
		e.AttemptID, e.ExecutionID = "a", "x"
		if r, err = attach.Reduce(r, e); err != nil {
			t.Errorf("%s: %v", in.Bytes(), err)
		}
	}
	if r.Current == "" {
		t.Fatal("no evidence")
	}
	return r
}
