package monty

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ossicle/ossicle/internal/process"
)

const (
	// startTime bounds the start of a child, up to its first answer.
	startTime = 15 * time.Second
	// recursionLimit is Python's own default.
	recursionLimit = 1000
	// maxSmallFrame bounds every answer that carries no value of the program.
	maxSmallFrame = 1 << 20
	// baseAddressSpace is what a child maps before and beside the program's
	// values; values may take addressSpaceFactor times their accounted size.
	baseAddressSpace   = 256 << 20
	addressSpaceFactor = 3
	// maxResident retires a child that once needed much memory and keeps it.
	maxResident = 96 << 20
	// residentRuns and residentTime say when that is looked at: reading it for
	// every short run would cost more than it saves.
	residentRuns = 256
	residentTime = 20 * time.Millisecond
	// stderrTail is how much of a dead child's last words is kept.
	stderrTail = 4 << 10
)

// errStale says that a child was dead before it read the program.
var errStale = errors.New("interpreter was gone")

// worker is one interpreter process. It serves one run at a time and holds no
// state between runs that the parent does not hold as well.
type worker struct {
	proc   *process.Process
	frames frameReader
	out    []byte // scratch for requests

	holds   uint64 // id of the state that the session in the child is in; 0: unknown
	grown   int    // bytes of source fed since that session was loaded
	runs    int
	address uint64 // bytes of address space granted
}

// startWorker starts a child and makes sure that it speaks our protocol.
// Errors: *ProtocolError, or why it did not start.
func startWorker(path string, memory int) (*worker, error) {
	p, err := process.Start(process.Options{
		Args: []string{path, "subprocess"}, Env: []string{}, Dir: "/", StderrLimit: stderrTail,
	})
	if err != nil {
		return nil, fmt.Errorf("start monty: %w", err)
	}
	w := &worker{proc: p, frames: frameReader{r: bufio.NewReaderSize(p.Stdout, 64<<10)}}
	late := time.AfterFunc(startTime, w.kill)
	// The handshake comes first, for a child that does not speak our protocol has
	// something to say; a program runs only after both.
	if err = w.handshake(memory); err == nil {
		err = errors.Join(confine(p.Pid()), w.grant(memory))
	}
	if !late.Stop() {
		err = errors.Join(err, fmt.Errorf("no answer within %v", startTime))
	}
	if err != nil {
		w.kill()
		if pe, ok := errors.AsType[*ProtocolError](err); ok {
			return nil, pe
		}
		return nil, fmt.Errorf("start monty: %w%s", err, w.lastWords())
	}
	return w, nil
}

func (w *worker) handshake(memory int) error {
	w.out = appendFrame(w.out[:0], reqConfigure, session{name: "handshake", memory: memory}.body())
	sent := w.send() // a child that is gone may have left a word
	ev, err := w.frames.next(maxSmallFrame, nil)
	switch {
	case err != nil:
		return errors.Join(sent, err)
	case ev.kind == evFatal:
		return &ProtocolError{Text: clip(text(ev.body, 1), maxMessage)}
	case ev.kind == evError:
		e := exceptionOf(ev.body)
		return &ProtocolError{Text: e.Error()}
	case ev.kind != evOK:
		return &ProtocolError{Text: fmt.Sprintf("event %d instead of an acknowledgement", ev.kind)}
	}
	return nil
}

// session is what a fresh session is configured with.
type session struct {
	name   string // of the script
	memory int
	stubs  string // with checking
	check  bool
}

func (s session) body() []byte {
	limits := appendUint(nil, 2, uint64(s.memory))
	limits = appendUint(limits, 4, recursionLimit)
	b := appendMessage(appendString(nil, 1, s.name), 2, limits)
	if s.check {
		b = appendString(appendUint(b, 3, 1), 4, s.stubs)
		b = appendUint(b, 7, formatJSONLines)
	}
	return appendUint(b, 9, protocolVersion)
}

// send writes the requests in w.out. It blocks until the child read them or is
// killed.
func (w *worker) send() error {
	_, err := w.proc.Stdin.Write(w.out)
	if cap(w.out) > keepBuffer {
		w.out = nil
	}
	return err
}

// request sends one request and reads its turn.
func (w *worker) request(kind protowire.Number, body []byte, limit int, out *output) (event, error) {
	w.out = appendFrame(w.out[:0], kind, body)
	if err := w.send(); err != nil {
		return event{}, err
	}
	return w.frames.next(limit, out)
}

// ok reads an acknowledgement.
func (w *worker) ok() error {
	ev, err := w.frames.next(maxSmallFrame, nil)
	if err != nil {
		return err
	}
	return w.expect(ev, evOK)
}

func (w *worker) expect(ev event, kind int32) error {
	switch ev.kind {
	case kind:
		return nil
	case evError:
		return fmt.Errorf("interpreter refused a request: %s", exceptionOf(ev.body).Message)
	case evFatal:
		return fmt.Errorf("interpreter failed: %s", clip(text(ev.body, 1), maxMessage))
	}
	return fmt.Errorf("interpreter sent event %d instead of %d", ev.kind, kind)
}

// reset puts the child into a state, or into a fresh session when st is nil.
// What then appends goes out in the same write, so that the child need not wait
// for us. The caller reads the answers to the load or the configuration, and to
// what then appended. errStale says that the child was dead before it read
// anything.
func (w *worker) reset(st *state, count uint64, fresh session, then func(b []byte) []byte) error {
	w.holds, w.grown = 0, 0
	w.out = appendFrame(w.out[:0], reqReset, nil)
	if st == nil {
		w.out = appendFrame(w.out, reqConfigure, fresh.body())
	} else {
		w.out = st.appendLoad(w.out, count)
	}
	if then != nil {
		w.out = then(w.out)
	}
	if err := w.send(); err != nil && w.gone() {
		return errors.Join(errStale, err)
	}
	if err := w.ok(); err != nil {
		return errors.Join(errStale, err)
	}
	return nil
}

// dump returns a copy of the session. An *oversizeError says that it is larger
// than limit; the child is none the worse for it.
func (w *worker) dump(limit int) ([]byte, error) {
	ev, err := w.request(reqDump, nil, limit+maxFrameOverhead, nil)
	if err != nil {
		return nil, err
	}
	if err := w.expect(ev, evDump); err != nil {
		return nil, err
	}
	var dump []byte
	err = fields(ev.body, func(f field) error {
		if f.num == 1 {
			dump = append([]byte(nil), f.b...)
		}
		return nil
	})
	return dump, err
}

// maxFrameOverhead is more than a frame has besides the one value it carries.
const maxFrameOverhead = 64

// grant raises the bound of the address space to what a memory limit needs.
func (w *worker) grant(memory int) error {
	need := uint64(memory)*addressSpaceFactor + baseAddressSpace
	if need <= w.address {
		return nil
	}
	w.address = need
	return boundAddressSpace(w.proc.Pid(), need)
}

// bloated reports, now and then, whether the child holds much memory.
func (w *worker) bloated(took time.Duration) bool {
	w.runs++
	if took < residentTime && w.runs%residentRuns != 0 {
		return false
	}
	return residentBytes(w.proc.Pid()) > maxResident
}

// gone reports whether the child has ended.
func (w *worker) gone() bool {
	select {
	case <-w.proc.Done():
		return true
	default:
		return false
	}
}

// kill ends the child and waits for it. It is safe to call at any time.
func (w *worker) kill() { w.proc.Kill() }

// lastWords is what a dead child said last, as the end of a sentence.
func (w *worker) lastWords() string {
	s := strings.TrimSpace(w.proc.Stderr())
	if s == "" {
		return ""
	}
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	return ": " + clip(s, 300)
}
