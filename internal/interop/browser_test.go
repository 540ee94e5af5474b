package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/sqlite"
)

// chromium runs a page in a browser until the test ends.
func chromium(t *testing.T, address string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatal("chromium is not installed; run make setup")
		}
		t.Skip("chromium is not installed; run make setup")
	}
	home := t.TempDir()
	p, err := process.Start(process.Options{
		Args: []string{
			path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--user-data-dir=" + home, address,
		},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		// What it leaves to its helpers may be written for a moment longer.
		for range 100 {
			if os.RemoveAll(home) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	go func() { _, _ = io.Copy(io.Discard, p.Stdout) }()
}

// followPage follows the feed that the test names and tells it of everything that happens.
const followPage = `<!doctype html><meta charset="utf-8"><title>follow</title>
<script type="module">
let said = Promise.resolve();
const say = (text) => { said = said.then(() => fetch("/said", {method: "POST", body: text})); };
const stream = new EventSource(await (await fetch("/stream")).text());
stream.onopen = () => say("open");
stream.onerror = () => say(stream.readyState === EventSource.CONNECTING ? "lost" : "over");
stream.onmessage = (e) => say(e.lastEventId.split("-")[1] + " " + JSON.parse(e.data).data);
stream.addEventListener("gap", (e) => say("gap " + e.data));
</script>`

// page serves followPage, and passes on what it says. Its stream is asked for when the
// page is there: a ticket lives for a minute, and a browser may take that long to start.
func page(t *testing.T, stream func() string) (*httptest.Server, <-chan string) {
	t.Helper()
	said := make(chan string, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, followPage)
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, stream()) })
	mux.HandleFunc("POST /said", func(_ http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err == nil {
			said <- string(b)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server, said
}

// F-19, F-22: the EventSource of a browser, with a ticket, gets each event once
// and in order across the death of the server, also what was published meanwhile.
func TestEventSource(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a browser")
	}
	daemons := make(chan *daemon, 1)
	server, said := page(t, func() string {
		d := <-daemons
		var got struct {
			Ticket string `json:"ticket"`
		}
		if err := json.Unmarshal(d.post("/v1/tickets", `{"topics":["builds"]}`), &got); err != nil {
			t.Error(err)
		}
		return "http://" + d.addr + "/v1/events?topic=builds&ticket=" + got.Ticket
	})
	d := newDaemon(t, nil, "--origin", server.URL)
	daemons <- d
	chromium(t, server.URL)

	var heard []string
	hear := func(want string) {
		t.Helper()
		for limit := time.After(patience); ; {
			select {
			case line := <-said:
				heard = append(heard, line)
				if line == want {
					return
				}
			case <-limit:
				t.Fatalf("the page has not said %q but %q", want, heard)
			}
		}
	}
	hear("open")
	d.post("/v1/topics/builds/events", `[{"data":"one"},{"data":"two"}]`)
	hear("2 two")
	d.p.Kill()
	hear("lost")
	whileDead(t, filepath.Join(d.data, "feed.db"))
	d.start()
	hear("3 three")
	d.post("/v1/topics/builds/events", `{"data":"four"}`)
	hear("4 four")

	var events []string
	for _, line := range heard {
		if line != "open" && line != "lost" {
			events = append(events, line)
		}
	}
	if diff := cmp.Diff([]string{"1 one", "2 two", "3 three", "4 four"}, events); diff != "" {
		t.Errorf("of %q (-want +got):\n%s", heard, diff)
	}
}

// whileDead publishes behind the back of a server that is not there.
func whileDead(t *testing.T, path string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	drafts, err := feed.Clean([]feed.Draft{{Topic: "builds", Data: json.RawMessage(`"three"`)}})
	if err == nil {
		_, err = db.Feed().Append(t.Context(), drafts)
	}
	if err != nil {
		t.Fatal(err)
	}
}
