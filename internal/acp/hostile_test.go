package acp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// sentPrompts are the prompts on the wire, block by block, steering included.
func sentPrompts(t *testing.T, frames string) (prompts [][]string) {
	t.Helper()
	for line := range strings.Lines(frames) {
		var f struct {
			Dir string `json:"dir"`
			Raw struct {
				Method string `json:"method"`
				Params struct {
					Prompt []struct{ Type, Text string } `json:"prompt"`
				} `json:"params"`
			} `json:"raw"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("a line of the record is no JSON: %v: %.200q", err, line)
		}
		if f.Dir != "sent" || f.Raw.Method != methodPrompt && f.Raw.Method != methodSteer {
			continue
		}
		var blocks []string
		for _, b := range f.Raw.Params.Prompt {
			blocks = append(blocks, b.Type+" "+b.Text)
		}
		prompts = append(prompts, blocks)
	}
	return prompts
}

// D-17: whatever a notice says, it reaches the agent as one block of text in one
// frame, as it was framed, and nothing else is sent.
func TestHostileNotices(t *testing.T) {
	t.Parallel()
	frames := &syncBuffer{}
	e := mock(t, "quiet,steering,nomcp", &Options{Frames: frames})
	_, ev := begin(t, e, agent.StartOptions{})
	var want []string
	say := func(text string) agent.Prompt {
		want = append(want, text)
		return agent.Prompt{Parts: []agent.Part{{Kind: agent.PartNotice, Text: text}}}
	}
	corpus := noticetest.Corpus(t)
	for _, h := range corpus {
		framed := notice.Frame(notice.Notice{Source: notice.SourceFeed, Title: h.Text, Text: h.Text})
		noticetest.Bearable(t, framed, 1)
		out, err := e.Turn(t.Context(), say(framed))
		if err != nil || !out.Delivered() {
			t.Fatalf("%s: %+v, %v", h.Name, out, err)
		}
	}
	for _, event := range ev.all() {
		if _, asked := event.(agent.Permission); asked {
			t.Error("a notice made the agent ask for a permission")
		}
	}
	got := sentPrompts(t, frames.String())
	if len(got) != len(want) {
		t.Fatalf("%d prompts on the wire, want %d", len(got), len(want))
	}
	for i, blocks := range got {
		if len(blocks) != 1 || blocks[0] != "text "+want[i] {
			t.Errorf("%s: on the wire %.300q, want %.300q", corpus[i].Name, blocks, want[i])
		}
	}
}

// D-17: the same, offered to a turn that runs.
func TestHostileSteering(t *testing.T) {
	t.Parallel()
	frames := &syncBuffer{}
	e := mock(t, "quiet,steering,nomcp", &Options{Frames: frames})
	begin(t, e, agent.StartOptions{})
	ended := make(chan error, 1)
	go func() {
		_, err := e.Turn(t.Context(), user("SLEEP 600s"))
		ended <- err
	}()
	var want []string
	for _, h := range noticetest.Corpus(t) {
		aside := notice.Aside(notice.Notice{Source: notice.SourceSignal, Title: h.Text, Text: h.Text})
		noticetest.Bearable(t, aside, 1)
		for { // the turn may not have begun
			out, err := e.Steer(t.Context(), agent.Prompt{Parts: []agent.Part{{Kind: agent.PartNotice, Text: aside}}})
			if err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
			if out == agent.SteerInjected {
				break
			}
		}
		want = append(want, aside)
	}
	if err := e.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, blocks := range sentPrompts(t, frames.String()) {
		if len(blocks) != 1 {
			t.Fatalf("blocks %q", blocks)
		}
		got = append(got, strings.TrimPrefix(blocks[0], "text "))
	}
	at := 0
	for _, text := range got {
		if at < len(want) && text == want[at] {
			at++
		}
	}
	if at != len(want) {
		t.Errorf("%d of %d offers are on the wire as they were framed", at, len(want))
	}
}
