package monty

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func newRun(s *scope, mem memory, source string, inputs []input, lim python.Limits, cancel context.CancelCauseFunc) *run {
	return &run{
		s: s, mem: mem, source: source, inputs: inputs, lim: lim, cancel: cancel,
		plain: !strings.Contains(source, "await") && !strings.Contains(source, "asyncio"),
		long:  lim.Time >= longRun,
		calls: newCallSet(s.opts.Call),
		out:   output{limit: lim.Output},
		clock: clock{left: lim.Time},
	}
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
		r.s.e.pool.log.Warn("host call outlives its run")
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
	if prelude == "" && st != nil && st == r.mem.state && r.w.holds == st.id && r.w.grown <= max(residentSlack, len(st.dump)/4) {
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

// prepare returns the state to load, and notes the program in the memory.
func (r *run) prepare(ctx context.Context) (*state, error) {
	r.remember()
	st := r.mem.state
	if st == nil {
		return nil, nil
	}
	if len(st.dump) >= r.mem.rebuildAt && st.memory == r.lim.Memory {
		if err := r.rebuild(ctx); err != nil {
			return nil, err
		}
		st = r.mem.state
	}
	return st.withMemory(r.lim.Memory)
}

// remember notes the program and its inputs. It does so once; a second call
// finds the same.
func (r *run) remember() {
	m := &r.mem
	if r.source != m.source || m.state == nil {
		m.words = m.words.with(r.source)
		m.source, m.number = r.source, 0
		if m.state != nil {
			m.number = m.state.count
		}
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

// complete makes the result of a program that ran to its end.
func (r *run) complete(ctx context.Context, ev event) (python.Result, error) {
	res, err := r.result(ctx, ev)
	if err != nil {
		return python.Result{}, err
	}
	if err := r.save(ctx); err != nil {
		return python.Result{}, err
	}
	return res, nil
}

// failed makes the error of a program that raised. The variables that it set
// stay, unless it hit a limit.
func (r *run) failed(ctx context.Context, ev event) error {
	err := raised(exceptionOf(ev.body), r.lim.Memory)
	if _, ok := errors.AsType[*python.LimitError](err); ok {
		r.w.holds = 0
		r.giveBack(true)
		return err
	}
	if saveErr := r.save(ctx); saveErr != nil {
		return saveErr
	}
	return err
}

// result converts the last value, before the next read overwrites it.
func (r *run) result(ctx context.Context, ev event) (python.Result, error) {
	var res python.Result
	var value object
	value.num = objNone
	err := fields(ev.body, func(f field) (err error) {
		if f.num == 1 {
			value, err = parseObject(f.b)
		}
		return err
	})
	if err != nil {
		return res, r.broken(ctx, err)
	}
	limit := r.s.e.resultLimit
	res.None = value.num == objNone
	res.Value, err = jsonWriter{limit: limit}.append(nil, value, 0)
	if errors.Is(err, errNoShape) {
		res.Value, err = nil, nil
	}
	if err == nil && !res.None {
		p := printer{limit: limit}
		res.Text, err = p.str(value)
	}
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, errDepth), len(res.Value) > limit, len(res.Text) > limit:
		return python.Result{}, r.tooLarge()
	case err != nil:
		return python.Result{}, r.broken(ctx, err)
	}
	return res, nil
}

func (r *run) tooLarge() error {
	r.w.holds = 0
	r.giveBack(true)
	return &python.LimitError{Limit: python.LimitResult, Text: fmt.Sprintf("more than %d bytes", r.s.e.resultLimit)}
}

// save dumps the session into the memory and gives the child back.
func (r *run) save(ctx context.Context) error {
	dump, err := r.w.dump(r.s.e.stateLimit)
	if over, ok := errors.AsType[*oversizeError](err); ok {
		r.w.holds = 0
		r.giveBack(true)
		return &python.LimitError{Limit: python.LimitMemory, Text: fmt.Sprintf("variables of %d bytes, at most %d", over.size, r.s.e.stateLimit)}
	}
	if err != nil {
		return r.broken(ctx, err)
	}
	r.mem.state = newState(dump, r.s.e.nextState(), r.lim.Memory)
	r.w.holds = r.mem.state.id
	r.commit = true
	r.giveBack(true)
	return nil
}

// settle waits for the host calls that the program did not await. The program
// has ended, but what it asked for is still its own.
func (r *run) settle(ctx context.Context) error {
	for {
		for _, o := range r.calls.take() {
			if o.err != nil && !o.excused {
				return unawaited(o)
			}
		}
		if !r.calls.isOwing() {
			return nil
		}
		select {
		case <-r.calls.bell:
		case <-ctx.Done():
			return r.ended(ctx)
		}
	}
}

func unawaited(o outcome) error {
	e := &python.Error{Type: "RuntimeError", Message: o.err.Error()}
	if pe, ok := errors.AsType[*python.Error](o.err); ok {
		e.Type, e.Message = pe.Type, pe.Message
	}
	e.Message = clip(o.name+" (not awaited): "+e.Message, maxMessage)
	return e
}

// borrow takes a child from the pool. The time in the queue is not the
// program's.
func (r *run) borrow(ctx context.Context, holds uint64) error {
	r.clock.stop()
	w, err := r.s.e.pool.get(ctx, r.long, holds, r.lim.Memory)
	if err != nil {
		return err
	}
	r.w = w
	r.unwatch = context.AfterFunc(ctx, w.kill)
	r.began = time.Now()
	r.clock.start(r.cancel)
	return nil
}

// giveBack returns the child, if there is one. healthy says that it is between
// two requests.
func (r *run) giveBack(healthy bool) {
	if r.w == nil {
		return
	}
	if !r.unwatch() {
		healthy = false // it is being killed
	}
	if healthy && r.w.bloated(time.Since(r.began)) {
		healthy = false
	}
	r.s.e.pool.put(r.w, r.long, healthy)
	r.w = nil
}

// broken gives up the child and says why the run ended.
func (r *run) broken(ctx context.Context, err error) error {
	w := r.w
	if w == nil { // none was to be had
		if ctx.Err() != nil {
			return r.ended(ctx)
		}
		return err
	}
	w.kill()
	r.giveBack(false)
	if ctx.Err() != nil {
		return r.ended(ctx)
	}
	if _, ok := errors.AsType[*oversizeError](err); ok {
		return &python.LimitError{Limit: python.LimitResult, Text: fmt.Sprintf("more than %d bytes", r.s.e.resultLimit)}
	}
	if _, ok := errors.AsType[*python.LimitError](err); ok || errors.Is(err, errMemoryFixed) {
		return err
	}
	return crashed(w, err, r.lim.Memory)
}

// ended is the error of a run whose context ended.
func (r *run) ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTime) {
		return &python.LimitError{Limit: python.LimitTime, Text: fmt.Sprintf("more than %v", r.lim.Time)}
	}
	return reason(ctx)
}

// clock measures the time of a run and cancels it at the end.
type clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

func (c *clock) start(cancel context.CancelCauseFunc) {
	c.since = time.Now()
	c.timer = time.AfterFunc(max(c.left, time.Nanosecond), func() { cancel(errTime) })
}

func (c *clock) stop() {
	if c.timer != nil {
		c.timer.Stop()
		c.left -= time.Since(c.since)
		c.timer = nil
	}
}

// next reads the next event of the program.
func (r *run) next() (event, error) { return r.w.frames.next(r.frameLimit(), &r.out) }

// frameLimit bounds a value on the wire. It takes at most about this much more
// than in JSON: a small integer is five bytes there and two here.
func (r *run) frameLimit() int { return wireFactor*r.s.e.resultLimit + maxSmallFrame }

const wireFactor = 8
