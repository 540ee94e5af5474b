package monty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ossicle/ossicle/internal/python"
)

// call answers a call of an unknown function or of a host function. A host call
// is answered by its value when the program is plain, and otherwise by a future,
// so that calls under asyncio.gather run concurrently.
func (r *run) call(ctx context.Context, ev event) (event, error) {
	call, id, err := r.decodeCall(ev.body)
	switch {
	case errors.Is(err, errTooLarge):
		return r.resumeCall(id, appendMessage(nil, 2, exception(fmt.Errorf(
			"arguments of %s are larger than %d bytes", clip(call.Name, maxSourceLine), r.s.e.resultLimit))))
	case err != nil:
		return event{}, err
	case !r.s.known[call.Name]:
		return r.resumeCall(id, appendString(nil, 4, call.Name)) // raises NameError
	case r.calls.made >= r.lim.Calls:
		return r.resumeCall(id, appendMessage(nil, 2, exception(fmt.Errorf("more than %d host calls in one run", r.lim.Calls))))
	}
	r.calls.made++
	r.calls.start(ctx, id, call)
	if !r.plain {
		return r.resumeCall(id, appendUint(nil, 3, uint64(id)))
	}
	outcomes, err := r.await(ctx)
	if err != nil {
		return event{}, err
	}
	return r.resumeCall(id, appendOutcome(nil, outcomes[0], r.lim.Memory))
}

// decodeCall reads a FunctionCall. errTooLarge comes with the name and the id.
func (r *run) decodeCall(b []byte) (call python.Call, id uint32, err error) {
	w := jsonWriter{limit: r.s.e.resultLimit, lenient: true}
	var large error
	arg := func(o object) (json.RawMessage, error) {
		text, err := w.append(nil, o, 0)
		if w.limit -= len(text); w.limit < 0 || errors.Is(err, errTooLarge) || errors.Is(err, errDepth) {
			large = errTooLarge
			return nil, nil
		}
		return text, err
	}
	err = fields(b, func(f field) error {
		switch f.num {
		case 1:
			call.Name = string(f.b)
		case 2:
			o, err := parseObject(f.b)
			if err != nil {
				return err
			}
			a, err := arg(o)
			call.Args = append(call.Args, a)
			return err
		case 3:
			k, v, err := parsePair(f.b)
			if err != nil {
				return err
			}
			if call.Kwargs == nil {
				call.Kwargs = map[string]json.RawMessage{}
			}
			call.Kwargs[string(k.b)], err = arg(v)
			return err
		case 4:
			id = uint32(f.n)
		}
		return nil
	})
	return call, id, errors.Join(err, large)
}

// resumeCall answers a call with an ExtFunctionResult.
func (r *run) resumeCall(id uint32, result []byte) (event, error) {
	return r.w.request(reqResumeCall, appendMessage(appendUint(nil, 1, uint64(id)), 2, result), r.frameLimit(), &r.out)
}

// lookUp answers the look-up of a name that is no variable.
func (r *run) lookUp(ev event) (event, error) {
	name := text(ev.body, 1)
	answer := appendMessage(nil, 2, nil) // raises NameError
	if r.s.known[name] {
		answer = appendMessage(nil, 1, appendMessage(nil, objFunction, appendString(nil, 1, name)))
	}
	return r.w.request(reqResumeName, answer, r.frameLimit(), &r.out)
}

// refuse answers a call of the operating system: files, environment and clock
// do not exist here. The program gets PermissionError or RuntimeError.
func (r *run) refuse(ev event) (event, error) {
	var id uint32
	err := fields(ev.body, func(f field) error {
		if f.num == 1 && f.typ == protowire.VarintType {
			id = uint32(f.n)
		}
		return nil
	})
	if err != nil {
		return event{}, err
	}
	return r.resumeCall(id, appendMessage(nil, 5, nil))
}

// futures answers when each task of the program waits for a host call.
func (r *run) futures(ctx context.Context, ev event) (event, error) {
	pending, err := pendingCalls(ev.body)
	if err != nil {
		return event{}, err
	}
	var results []byte
	for _, id := range pending {
		if !r.calls.isOpen(id) {
			// Nothing will ever answer this one. It cannot be, but a child that
			// says so must not make us wait.
			o := outcome{id: id, name: "call", err: errors.New("host call of an earlier run")}
			results = r.appendFuture(results, o)
		}
	}
	if results == nil && len(pending) > 0 {
		outcomes, err := r.await(ctx)
		if err != nil {
			return event{}, err
		}
		for _, o := range outcomes {
			if o.err != nil {
				r.calls.excuse()
			}
			results = r.appendFuture(results, o)
		}
	}
	return r.w.request(reqResumeAll, results, r.frameLimit(), &r.out)
}

func (r *run) appendFuture(b []byte, o outcome) []byte {
	result := appendOutcome(nil, o, r.lim.Memory)
	return appendMessage(b, 1, appendMessage(appendUint(nil, 1, uint64(o.id)), 2, result))
}

// pendingCalls reads a ResolveFutures, whose numbers are packed or not.
func pendingCalls(b []byte) ([]uint32, error) {
	var ids []uint32
	err := fields(b, func(f field) error {
		if f.num != 1 {
			return nil
		}
		if f.typ == protowire.VarintType {
			ids = append(ids, uint32(f.n))
			return nil
		}
		for len(f.b) > 0 {
			id, n := protowire.ConsumeVarint(f.b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			ids = append(ids, uint32(id))
			f.b = f.b[n:]
		}
		return nil
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// await returns at least one outcome of a host call. If that takes long, the
// child serves others in between.
func (r *run) await(ctx context.Context) ([]outcome, error) {
	timer := time.NewTimer(parkAfter)
	defer timer.Stop()
	for {
		if out := r.calls.take(); len(out) > 0 {
			return out, r.unpark(ctx)
		}
		select {
		case <-r.calls.bell:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			if err := r.park(); err != nil {
				return nil, err
			}
		}
	}
}

// park dumps the program in the middle of its wait and gives the child back.
// With more variables than may be saved it keeps the child.
func (r *run) park() error {
	dump, err := r.w.dump(r.s.e.stateLimit)
	if _, ok := errors.AsType[*oversizeError](err); ok {
		return nil
	}
	if err != nil {
		return err
	}
	r.parked = newState(dump, r.s.e.nextState(), r.lim.Memory)
	r.w.holds = r.parked.id
	r.giveBack(true)
	return nil
}

// unpark brings a parked program into a child again, usually the one that still
// has it. A loaded program repeats the event that it waits at.
func (r *run) unpark(ctx context.Context) error {
	if r.parked == nil {
		return nil
	}
	for try := 1; ; try++ {
		if err := r.borrow(ctx, r.parked.id); err != nil {
			return err
		}
		err := r.reload()
		if err == nil {
			r.parked = nil
			return nil
		}
		if !errors.Is(err, errStale) || ctx.Err() != nil || try == staleTries {
			return err
		}
		r.giveBack(false)
	}
}

func (r *run) reload() error {
	if r.w.holds == r.parked.id {
		r.w.holds = 0
		return nil
	}
	if err := r.w.reset(r.parked, 0, session{}, nil); err != nil {
		return err
	}
	ev, err := r.next()
	if err == nil && ev.kind != evCall && ev.kind != evFutures {
		err = fmt.Errorf("interpreter sent event %d instead of the wait", ev.kind)
	}
	return err
}
