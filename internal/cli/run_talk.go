package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
)

// talk is a session in the terminal: it prints what happens and hands lines to
// the agent. It is the channel of the person's input, so replies go to it.
type talk struct {
	env *env

	mu        sync.Mutex // of what is printed, and the rest
	questions []agent.Update
	session   *agent.Session
	one       *app.Agent
	shown     map[string]string // status of tool calls that were printed
	ended     error             // how the program in a terminal ended, while none runs
	failures  failures
	last      *agent.Ticket // of the last line that was said, nil where a person says them

	ran   chan struct{} // holds one: a run has ended
	lines chan string
}

func newTalk(e *env) *talk {
	return &talk{env: e, shown: map[string]string{}, ran: make(chan struct{}, 1), lines: make(chan string)}
}

// Name implements agent.Channel.
func (t *talk) Name() string { return "terminal" }

// Publish implements agent.Channel.
func (t *talk) Publish(_ context.Context, r agent.Reply) error {
	if t.env.json || r.Err != nil {
		return nil // its update says so
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := fmt.Fprintln(t.env.Out, printable(r.Text))
	return err
}

// run lives the session until it has nothing more to wait for, or ctx ends.
func (t *talk) run(ctx context.Context, one *app.Agent, prompt string) error {
	err := t.live(ctx, one, prompt)
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed, ok := errors.AsType[*agentError](err); ok {
		if t.env.json {
			failed.output = lastWords(one)
		} else if t.failures.told(err.Error()) {
			err = &codeError{code: exitAgent, reason: err.Error(), silent: true}
		}
	}
	if _, typed := one.Terminal(); !typed || ctx.Err() != nil {
		return err
	}
	return programEnded(err, t.ended)
}

func (t *talk) live(ctx context.Context, one *app.Agent, prompt string) error {
	t.session, t.one = one.Session, one
	sub := one.Session.Subscribe()
	var printer sync.WaitGroup
	printer.Go(func() { t.print(sub) })
	defer printer.Wait()
	defer sub.Close()

	var first *agent.Ticket
	if prompt != "" {
		ticket, err := one.Session.Submit(agent.Input{Text: prompt, From: "user", Channel: t})
		if err != nil {
			return err
		}
		first = ticket
	}
	if prompt == "" && (one.Listening() || terminal(t.env.In)) {
		t.troubled() // or nobody would know before the first turn, which may be long in coming
	}
	if prompt == "" || terminal(t.env.In) {
		// The reader cannot be woken: it ends with the input, or the process.
		go t.read(ctx)
	} else {
		close(t.lines)
	}
	if quit, err := t.listen(ctx); quit || err != nil {
		return err
	}
	if err := t.linger(ctx); err != nil {
		return err
	}
	if first == nil {
		first = t.last
	}
	return verdict(ctx, first)
}

// troubled tells of an agent that cannot be started, or of a last turn that was cut off.
func (t *talk) troubled() {
	if trouble := t.session.Status().Trouble; trouble != nil {
		t.status("%s", trouble.Text)
	}
}

// verdict is what became of the first prompt, or of the last of the lines that a script
// said, when there was nothing else.
func verdict(ctx context.Context, first *agent.Ticket) error {
	if first == nil {
		return nil
	}
	select {
	case <-first.Done():
	default:
		return nil
	}
	if _, err := first.Wait(ctx); err != nil && ctx.Err() == nil {
		return &agentError{err: err}
	}
	return nil
}

// errSessionEnded ends the command when the session has ended by itself.
var errSessionEnded = errors.New("the session has ended")

// listen hands lines to the agent until there are no more.
func (t *talk) listen(ctx context.Context) (quit bool, err error) {
	for {
		select {
		case line, ok := <-t.lines:
			if !ok {
				return false, nil
			}
			if quit := t.line(ctx, line); quit {
				return true, nil
			}
		case err := <-t.one.Failed():
			return true, err
		case <-t.session.Done():
			return true, errSessionEnded
		case <-ctx.Done():
			return true, nil // a signal is how a session is told to end
		}
	}
}

// linger goes on while a watch exists: after each run it looks whether there is
// anything left to wait for.
func (t *talk) linger(ctx context.Context) error {
	for {
		if t.session.WaitIdle(ctx) != nil || !t.one.Listening() && t.session.CloseIfIdle() {
			return nil //nolint:nilerr // ctx has ended: a signal
		}
		select {
		case <-t.ran:
		case err := <-t.one.Failed():
			return err
		case <-t.session.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads lines from standard input.
func (t *talk) read(ctx context.Context) {
	defer close(t.lines)
	in := bufio.NewReaderSize(t.env.In, 64<<10)
	for {
		line, err := readLine(in)
		if text := strings.TrimSpace(line); text != "" {
			select {
			case t.lines <- text:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readLine reads a line of at most what an input may have; what is over is
// dropped, and the session refuses the rest as too large.
func readLine(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		part, err := in.ReadSlice('\n')
		if b.Len() <= agent.MaxInput {
			b.Write(part)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b.String(), err
		}
	}
}

// line is what a person says: a command, an answer to a question, or input.
func (t *talk) line(ctx context.Context, text string) (quit bool) {
	switch text {
	case "/quit", "/exit":
		return true
	case "/cancel":
		if !t.session.Cancel() {
			t.status("there is nothing to cancel")
		}
		return false
	case "/reset":
		if err := t.session.Reset(ctx); err != nil {
			t.status("%v", err)
		}
		return false
	case "/watches":
		t.watches()
		return false
	}
	if t.answer(text) {
		return false
	}
	ticket, err := t.session.Submit(agent.Input{Text: text, From: "user", Channel: t})
	switch {
	case err != nil:
		t.status("%v", err)
	case !terminal(t.env.In): // who sits there has seen what became of it
		t.last = ticket
	}
	return false
}

func (t *talk) watches() {
	list := t.one.Client.Watches.List()
	if len(list) == 0 {
		t.status("no watches")
	}
	for _, w := range list {
		t.status("%s", watchLine(w))
	}
}

// answer takes a number as the answer to the oldest open question.
func (t *talk) answer(text string) bool {
	n, err := strconv.Atoi(text)
	if err != nil {
		return false
	}
	t.mu.Lock()
	var q *agent.Update
	if len(t.questions) > 0 && n >= 1 && n <= len(t.questions[0].Options) {
		q = &t.questions[0]
	}
	t.mu.Unlock()
	if q == nil {
		return false
	}
	if err := t.session.Answer(q.ID, q.Options[n-1].ID); err != nil {
		t.status("%v", err)
	}
	return true
}

// status tells the person something on standard error.
func (t *talk) status(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = io.WriteString(t.env.Err, printable(fmt.Sprintf(format, args...))+"\n")
}

// print shows updates until the session ends.
func (t *talk) print(sub *agent.Subscription) {
	for u := range sub.C {
		t.mu.Lock()
		if t.env.json {
			_ = writeJSON(t.env.Out, u)
		} else {
			t.show(&u)
		}
		switch u.Event {
		case agent.EventExited:
			t.ended = u.Cause()
		case agent.EventStarted:
			t.ended = nil
		}
		t.mu.Unlock()
		switch u.Event {
		case agent.EventRunEnded:
			select {
			case t.ran <- struct{}{}:
			default:
			}
		case agent.EventPermission, agent.EventPermissionDone:
			t.question(u)
		}
	}
	if err := sub.Err(); err != nil {
		t.status("%v", err)
	}
}

// question keeps what a person can answer.
func (t *talk) question(u agent.Update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.Event == agent.EventPermission {
		t.questions = append(t.questions, u)
		return
	}
	for i := range t.questions {
		if t.questions[i].ID == u.ID {
			t.questions = append(t.questions[:i:i], t.questions[i+1:]...)
			return
		}
	}
}

// show prints what a person wants to see. Replies come by Publish; what is
// about the agent and not from it goes to standard error.
func (t *talk) show(u *agent.Update) {
	say := func(format string, args ...any) {
		_, _ = io.WriteString(t.env.Err, printable(fmt.Sprintf(format, args...))+"\n")
	}
	switch u.Event {
	case agent.EventNoticeQueued:
		_, _ = io.WriteString(t.env.Out, noticeText(u))
	case agent.EventReply:
		if u.Error != "" {
			if t.failures.reply(u.Error) {
				say("%s", t.failure(u))
			}
			return
		}
		if u.Channel != "" && u.Channel != t.Name() {
			say("to %s: %s", u.Channel, firstLine(u.Text, 200))
		}
	case agent.EventInputQueued:
		if u.Channel != "" && u.Channel != t.Name() {
			say("%s in %s: %s", u.From, u.Channel, firstLine(u.Text, 200))
		}
	case agent.EventNoticeLost:
		say("a notice of %s was not shown: %s", u.Name, u.Error)
	case agent.EventStarting:
		t.failures.begin()
	case agent.EventStarted:
		say("agent: %s", u.Name)
	case agent.EventExited:
		if t.failures.exit(u.Error) {
			say("%s", t.failure(u))
		}
	case agent.EventTool:
		if t.shown[u.ID] == "" && u.Text != "" {
			t.shown[u.ID] = "shown"
			say("  uses %s", firstLine(u.Text, 100))
		}
		if u.Status == string(agent.ToolFailed) {
			say("  failed: %s", firstLine(u.Text, 100))
		}
	case agent.EventRunEnded:
		clear(t.shown)
	case agent.EventText:
		if u.Aside {
			say("  (out of turn) %s", firstLine(u.Text, 200))
		}
	case agent.EventHeld:
		say("notices wait for your next message")
	case agent.EventPermission:
		say("the agent asks: may it %s?", firstLine(u.Text, 200))
		for i, o := range u.Options {
			say("  %d  %s", i+1, firstLine(o.Name, 80))
		}
	case agent.EventPermissionDone:
		say("  answered: %s (%s)", u.Kind, u.Reason)
	}
}

// noticeText is a notice as ossicle watch prints it.
func noticeText(u *agent.Update) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", u.Time.Local().Format("15:04:05"), printable(strings.TrimSpace(u.Name+" "+u.URI)))
	for line := range strings.Lines(u.Text) {
		b.WriteString("  " + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}
