package monty

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/internal/python"
)

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
	if err := r.dropInputs(); isScratch(err) {
		r.w.holds = 0
		r.giveBack(true)
		return memoryLimit(r.lim.Memory) // there is no other reason for so little to fail
	} else if err != nil {
		return r.broken(ctx, err)
	}
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
	r.mem.next = max(r.mem.next, r.mem.state.count)
	r.w.holds = r.mem.state.id
	r.commit = true
	r.giveBack(true)
	return nil
}

// inputKeep is the size of an input, in bytes, from which it does not stay in the
// scope: it would be dumped and loaded, and count as the program's variables,
// though the next run replaces it.
const inputKeep = 16 << 10

// dropInputs sets large inputs to None.
func (r *run) dropInputs() error {
	var source strings.Builder
	for _, in := range r.inputs {
		if len(in.value) > inputKeep {
			source.WriteString(in.name + " = None\n")
		}
	}
	if source.Len() == 0 {
		return nil
	}
	_, err := r.w.scratch(source.String(), nil, maxSmallFrame)
	return err
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
