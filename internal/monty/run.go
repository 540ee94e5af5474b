package monty

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

const (
	// parkAfter is how long a program waits for host calls with a child in its
	// hands. After that it is dumped, and the child serves others.
	parkAfter = 2 * time.Millisecond
	// staleTries is how often a run starts over with another child when the one
	// it got was dead before the program began.
	staleTries = 3
	// residentMin is the size of a dump, in bytes, from which it is worth finding
	// the child that holds it already.
	residentMin = 16 << 10
	// A session that goes on without being loaded anew keeps a copy of each
	// source. It may grow by a quarter of the dump, or by residentSlack bytes.
	residentSlack = 4 << 10
)

// run is one program on its way through an interpreter.
type run struct {
	s      *scope
	mem    memory // as it shall be after the run
	commit bool   // mem is to stay

	source string
	repeat bool // it is the program that ran last
	inputs []input
	lim    python.Limits
	cancel context.CancelCauseFunc

	// plain says that the program knows nothing of await: its host calls give
	// their values at once, and cannot run concurrently.
	plain bool
	long  bool
	calls *callSet
	out   output
	clock clock

	w       *worker
	unwatch func() bool
	began   time.Time
	parked  *state // the program in the middle of a wait, while no child has it
}

// asynchronous finds what a program has that waits for its host calls itself.
var asynchronous = regexp.MustCompile(`\b(?:await|asyncio)\b`)

func newRun(s *scope, mem memory, source string, inputs []input, lim python.Limits, cancel context.CancelCauseFunc) *run {
	r := &run{
		s: s, mem: mem, source: source, inputs: inputs, lim: lim, cancel: cancel,
		plain: !asynchronous.MatchString(source),
		long:  lim.Time >= longRun,
		calls: newCallSet(s.opts.Call),
		out:   output{limit: lim.Output},
		clock: clock{left: lim.Time},
	}
	r.remember()
	return r
}

// do runs the program to its end and waits for its host calls.
func (r *run) do(ctx context.Context) (python.Result, error) {
	res, err := r.interpret(ctx)
	r.giveBack(false) // only after an error is there still something to give back
	if err == nil {
		err = r.settle(ctx)
	}
	r.clock.stop()
	if _, raised := errors.AsType[*python.Error](err); err != nil && !raised {
		r.commit = false
	}
	r.cancel(nil)
	if !r.calls.drain(r.s.e.hostGrace) {
		r.s.e.pool.log.WarnContext(ctx, "host call outlives its run")
	}
	res.Output, res.OutputCut, res.Calls = r.out.String(), r.out.cut, r.calls.made
	return res, err
}

// interpret takes turns with the interpreter until the program has ended. When
// it returns a result or a *python.Error, mem is the new memory and no child is
// held.
func (r *run) interpret(ctx context.Context) (python.Result, error) {
	ev, err := r.start(ctx)
	for err == nil {
		switch ev.kind {
		case evComplete:
			return r.complete(ctx, ev)
		case evError:
			return python.Result{}, r.failed(ctx, ev)
		case evCall:
			ev, err = r.call(ctx, ev)
		case evName:
			ev, err = r.lookUp(ev)
		case evOSCall:
			ev, err = r.refuse(ev)
		case evFutures:
			ev, err = r.futures(ctx, ev)
		case evFatal:
			err = fmt.Errorf("interpreter failed: %s", clip(text(ev.body, 1), maxMessage))
		default:
			err = fmt.Errorf("interpreter sent event %d", ev.kind)
		}
	}
	return python.Result{}, r.broken(ctx, err)
}

// start sends the program to a child and returns the first event.
func (r *run) start(ctx context.Context) (event, error) {
	for try := 1; ; try++ {
		if err := r.borrow(ctx, r.stateID()); err != nil {
			return event{}, err
		}
		ev, err := r.feed(ctx)
		if !errors.Is(err, errStale) || ctx.Err() != nil || try == staleTries {
			return ev, err
		}
		r.giveBack(false)
	}
}

func (r *run) stateID() uint64 {
	if st := r.mem.state; st != nil && len(st.dump) >= residentMin {
		return st.id
	}
	return 0
}

// feed brings the scope into the child and starts the program.
func (r *run) feed(ctx context.Context) (event, error) {
	st, err := r.prepare(ctx)
	if err != nil {
		return event{}, err
	}
	inputs, prelude := unfold(r.inputs)
	if prelude == "" && st != nil && r.canGoOn(st) {
		return r.goOn(inputs)
	}
	first := r.source
	if prelude != "" {
		first = prelude
	}
	err = r.w.reset(st, r.mem.number, session{name: r.s.opts.Name, memory: r.lim.Memory}, func(b []byte) []byte {
		return appendFeed(b, first, inputs)
	})
	if err == nil {
		err = r.w.ok()
	}
	if err != nil {
		return event{}, err
	}
	ev, err := r.next()
	if err != nil || prelude == "" || ev.kind != evComplete {
		return ev, err
	}
	r.w.out = appendFeed(r.w.out[:0], r.source, nil)
	if err := r.w.send(); err != nil {
		return event{}, err
	}
	return r.next()
}

// canGoOn reports whether the child is in the state that the program wants.
func (r *run) canGoOn(st *state) bool {
	return st == r.mem.state && r.w.holds == st.id &&
		r.w.grown <= max(residentSlack, len(st.dump)/4) &&
		(r.repeat || st.count == r.mem.number)
}

// goOn runs the program in a child that is in the right state already. Nothing
// tells then whether it was alive when it began, so its death before the first
// event sends the run to another child: what it did up to there is undone by
// that, and printed text is dropped.
func (r *run) goOn(inputs []input) (event, error) {
	r.w.grown += len(r.source)
	r.w.holds = 0
	r.w.out = appendFeed(r.w.out[:0], r.source, inputs)
	err := r.w.send()
	var ev event
	if err == nil {
		ev, err = r.next()
	}
	if _, large := errors.AsType[*oversizeError](err); err != nil && !large {
		r.out = output{limit: r.lim.Output}
		return event{}, errors.Join(errStale, err)
	}
	return ev, err
}

// prepare returns the state to load, after a rebuild if one is due.
func (r *run) prepare(ctx context.Context) (*state, error) {
	st := r.mem.state
	if st == nil {
		return nil, nil
	}
	if len(st.dump) >= r.mem.rebuildAt {
		if err := r.rebuild(ctx); err != nil {
			return nil, err
		}
		st = r.mem.state
	}
	return st.withMemory(r.lim.Memory)
}

// remember notes the program and the names of its inputs.
func (r *run) remember() {
	m := &r.mem
	if r.repeat = r.source == m.source && m.state != nil; !r.repeat {
		m.words = m.words.with(r.source)
		m.source, m.number = r.source, m.next
	}
	for _, in := range r.inputs {
		if !m.inputs[in.name] {
			inputs := map[string]bool{in.name: true}
			for name := range m.inputs {
				inputs[name] = true
			}
			m.inputs = inputs
		}
	}
}

// unfold returns inputs that the wire can carry, and a program that makes of
// them what they shall be.
func unfold(inputs []input) (_ []input, prelude string) {
	for _, in := range inputs {
		if in.deep {
			if prelude == "" {
				prelude = "import json as " + hiddenName + "\n"
			}
			prelude += fmt.Sprintf("%s = %s.loads(%s)\n", in.name, hiddenName, in.name)
		}
	}
	return inputs, prelude
}

// hiddenName is a variable of ours in the program's scope.
const hiddenName = "__ossicle"
