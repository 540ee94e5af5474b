package monty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A session keeps every function, lambda, comprehension and class body that was
// ever compiled in it, so a filter that defines a helper on each run grows by
// some 50 to 400 bytes each time, for ever. It also keeps a place for every value
// that it ever held at once. A rebuild moves the variables to a fresh session. It is tried when a dump has grown to double its size, and done
// only when nothing can tell the difference:
//
//   - each variable is made of None, bool, int, float, str, bytes, list, tuple,
//     dict, set and frozenset only, which come back exactly as they were, or it
//     is defined anew by the program that is about to run;
//   - no list, dict or set is reachable on two ways, for the copy would have two.
//     Inputs of the coming run do not count, since they are about to be replaced.
//
// A scope that cannot be rebuilt grows until StateLimit.
const (
	// rebuildMin is the size of a dump, in bytes, below which growth is ignored.
	rebuildMin = 16 << 10
	// rebuildTime bounds one attempt.
	rebuildTime = 250 * time.Millisecond
	// rebuildGain is how many parts of four of the old dump the new one may have
	// at most to be worth it.
	rebuildGain = 3
)

// inspector is the scratch program that decides about the variables: whether
// each is plain, and the ids of all lists, dicts and sets. The program may have
// its own ideas of type and id, so the real ones come as inputs.
const inspector = `
def %[1]s_plain(v):
    t = %[1]s_type(v)
    if v is None or t is %[1]s_bool or t is %[1]s_int or t is %[1]s_float or t is %[1]s_str or t is %[1]s_bytes:
        return True
    if t is %[1]s_list or t is %[1]s_dict or t is %[1]s_set:
        %[1]s_ids.append(%[1]s_id(v))
    elif t is not %[1]s_tuple and t is not %[1]s_frozenset:
        return False
    for x in v:
        if not %[1]s_plain(x):
            return False
        if t is %[1]s_dict and not %[1]s_plain(v[x]):
            return False
    return True
%[1]s_ids = []
[[%[2]s], %[1]s_ids]
`

// inspectorInputs are the built-in functions and types that inspector needs.
func inspectorInputs() []input {
	var ins []input
	for _, name := range []string{"type", "id"} {
		ins = append(ins, input{name: hiddenName + "_" + name, value: appendString(nil, objBuiltin, name)})
	}
	for _, name := range []string{"bool", "int", "float", "str", "bytes", "list", "dict", "set", "tuple", "frozenset"} {
		builtin := appendUint(appendString(nil, 1, name), 3, originBuiltin)
		ins = append(ins, input{name: hiddenName + "_" + name, value: appendMessage(nil, objType, builtin)})
	}
	return ins
}

// originBuiltin is the origin of a type that Python itself defines.
const originBuiltin = 1

var errNotPlain = errors.New("variables are not plain")

// rebuild tries to move the variables to a fresh session. It returns errStale
// when that cost the child its life; the run starts over with another one then,
// and does not try again.
func (r *run) rebuild(ctx context.Context) error {
	old := r.mem.state
	r.mem.rebuildAt = max(rebuildMin, 2*len(old.dump))
	late := time.AfterFunc(rebuildTime, r.w.kill)
	dump, err := r.rebuilt(old)
	if !late.Stop() {
		return errors.Join(errStale, err)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNotPlain) || isScratch(err):
		r.w.holds = 0
		return nil
	case err != nil:
		r.w.kill()
		return errors.Join(errStale, err)
	case len(dump) > len(old.dump)/4*rebuildGain:
		r.w.holds = 0
		return nil
	}
	st := newState(dump, r.s.e.nextState(), r.lim.Memory)
	r.w.holds = st.id
	r.mem.state, r.mem.number, r.mem.next = st, st.count, st.count
	r.mem.rebuildAt = max(rebuildMin, 2*len(dump))
	return nil
}

func isScratch(err error) bool {
	_, raised := errors.AsType[*scratchError](err)
	_, large := errors.AsType[*oversizeError](err)
	return raised || large
}

// rebuilt returns the dump of a fresh session with the variables of the old one.
func (r *run) rebuilt(old *state) ([]byte, error) {
	if r.mem.words.full {
		return nil, errNotPlain
	}
	fresh := session{name: r.s.opts.Name, memory: r.lim.Memory}
	if err := r.w.reset(old, old.count, fresh, nil); err != nil {
		return nil, err
	}
	if err := r.w.ok(); err != nil {
		return nil, err
	}
	vars, err := r.variables()
	if err != nil {
		return nil, err
	}
	if err := r.w.reset(nil, 0, fresh, nil); err != nil {
		return nil, err
	}
	if err := r.w.ok(); err != nil {
		return nil, err
	}
	if _, err := r.w.scratch("None", vars, maxSmallFrame); err != nil {
		return nil, err
	}
	return r.w.dump(r.s.e.stateLimit)
}

// variables reads the values that have to be moved.
func (r *run) variables() ([]input, error) {
	skip := map[string]bool{}
	for _, in := range r.inputs {
		skip[in.name] = true
	}
	names := slices.DeleteFunc(r.mem.words.sorted(), func(name string) bool { return skip[name] })
	names, err := r.w.defined(names)
	if err == nil {
		names, err = r.w.own(names)
	}
	if err != nil || len(names) == 0 {
		return nil, err
	}
	plain, err := r.plainOnes(names)
	if err != nil {
		return nil, err
	}
	defs := definers(r.source)
	for _, name := range names {
		if !slices.Contains(plain, name) && !defs[name] {
			return nil, errNotPlain
		}
	}
	if len(plain) == 0 {
		return nil, nil
	}
	value, err := r.w.scratch("["+strings.Join(plain, ", ")+"]", nil, r.s.e.stateLimit*wireFactor)
	if err != nil {
		return nil, err
	}
	return split(value, plain)
}

// plainOnes returns the names whose values can be moved. errNotPlain says that
// something is reachable on two ways.
func (r *run) plainOnes(names []string) ([]string, error) {
	var list strings.Builder
	for _, name := range names {
		fmt.Fprintf(&list, "%s_plain(%s), ", hiddenName, name)
	}
	source := fmt.Sprintf(inspector, hiddenName, strings.TrimSuffix(list.String(), ", "))
	value, err := r.w.scratch(source, inspectorInputs(), r.s.e.stateLimit)
	if err != nil {
		return nil, err
	}
	var lists []object
	if err := value.items(func(o object) error { lists = append(lists, o); return nil }); err != nil {
		return nil, err
	}
	if len(lists) != 2 {
		return nil, errDesync
	}
	var plain []string
	i := 0
	err = lists[0].items(func(o object) error {
		if i == len(names) {
			return errDesync
		}
		if o.num == objBool && o.n != 0 {
			plain = append(plain, names[i])
		}
		i++
		return nil
	})
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	err = lists[1].items(func(o object) error {
		if o.num != objInt || seen[o.n] {
			return errNotPlain
		}
		seen[o.n] = true
		return nil
	})
	return plain, err
}

// split makes an input of each item of a list.
func split(list object, names []string) ([]input, error) {
	var vars []input
	err := fields(list.b, func(f field) error {
		if len(vars) == len(names) {
			return errDesync
		}
		vars = append(vars, input{name: names[len(vars)], value: slices.Clone(f.b)})
		return nil
	})
	if err == nil && len(vars) != len(names) {
		err = errDesync
	}
	return vars, err
}
