package monty

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// A scratch program of ours looks at a session that is thrown away afterwards,
// so it cannot disturb the scope that the session was loaded from.

const (
	// probeChunk is how many names one scratch program looks at.
	probeChunk = 400
	// maxScratchTurns bounds the questions that a scratch program may ask.
	maxScratchTurns = 4 * probeChunk
)

// scratchError says that a scratch program raised.
type scratchError struct{ text string }

func (e *scratchError) Error() string { return "scratch program: " + e.text }

// scratch runs a program that has no host functions and returns its value. The
// value is valid until the next read. Errors: *scratchError, *oversizeError,
// and what breaks the child.
func (w *worker) scratch(source string, inputs []input, limit int) (object, error) {
	w.out = appendFeed(w.out[:0], source, inputs)
	if err := w.send(); err != nil {
		return object{}, err
	}
	ev, err := w.frames.next(limit, nil)
	for range maxScratchTurns {
		if err != nil {
			return object{}, err
		}
		switch ev.kind {
		case evName:
			ev, err = w.request(reqResumeName, appendMessage(nil, 2, nil), limit, nil)
		case evComplete:
			var value object
			err := fields(ev.body, func(f field) (err error) {
				value, err = parseObject(f.b)
				return err
			})
			return value, err
		case evError:
			e := exceptionOf(ev.body)
			return object{}, &scratchError{text: e.Error()}
		default:
			return object{}, fmt.Errorf("interpreter sent event %d to a scratch program", ev.kind)
		}
	}
	return object{}, errors.New("scratch program asks too much")
}

// defined returns those of the names that have a value in the session, be it a
// variable's or a built-in one's.
func (w *worker) defined(names []string) ([]string, error) {
	var found []string
	for chunk := range slices.Chunk(names, probeChunk) {
		var src strings.Builder
		src.WriteString(hiddenName + " = []\n")
		for i, name := range chunk {
			fmt.Fprintf(&src, "try:\n    %s\n    %s.append(%d)\nexcept NameError:\n    pass\n", name, hiddenName, i)
		}
		src.WriteString(hiddenName)
		value, err := w.scratch(src.String(), nil, maxSmallFrame)
		if err != nil {
			return nil, err
		}
		err = value.items(func(o object) error {
			i := protowire.DecodeZigZag(o.n)
			if o.num != objInt || i < 0 || i >= int64(len(chunk)) {
				return errDesync
			}
			found = append(found, chunk[i])
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// builtins are the names that Python knows without an assignment.
var builtins = strings.Fields(`
ArithmeticError AssertionError AttributeError BaseException BlockingIOError BrokenPipeError BufferError
ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError EOFError Ellipsis
EnvironmentError Exception FileExistsError FileNotFoundError FloatingPointError GeneratorExit IOError ImportError
IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
ModuleNotFoundError NameError NotADirectoryError NotImplemented NotImplementedError OSError OverflowError
PermissionError ProcessLookupError RecursionError ReferenceError RuntimeError RuntimeWarning StopAsyncIteration
StopIteration SyntaxError SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError
UnicodeEncodeError UnicodeError UserWarning ValueError Warning ZeroDivisionError abs aiter all anext any ascii bin
bool breakpoint bytearray bytes callable chr classmethod compile complex delattr dict dir divmod enumerate eval exec
exit filter float format frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter len
list locals map max memoryview min next object oct open ord pow print property quit range repr reversed round set
setattr slice sorted staticmethod str sum super tuple type vars zip __name__ __debug__ __doc__ __file__ __import__`)

// own removes from defined names those that still have their built-in value.
func (w *worker) own(names []string) ([]string, error) {
	var suspects []string
	for _, name := range names {
		if slices.Contains(builtins, name) {
			suspects = append(suspects, name)
		}
	}
	if len(suspects) == 0 {
		return names, nil
	}
	value, err := w.scratch("["+strings.Join(suspects, ", ")+"]", nil, maxSmallFrame)
	if err != nil {
		return nil, err
	}
	i, builtin := 0, map[string]bool{}
	err = value.items(func(o object) error {
		if i >= len(suspects) {
			return errDesync
		}
		name := suspects[i]
		i++
		switch o.num {
		case objBuiltin:
			builtin[name] = string(o.b) == name
		case objType:
			builtin[name] = text(o.b, 1) == name
		case objEllipsis, objNotImplemented:
			builtin[name] = true
		case objStr:
			builtin[name] = strings.HasPrefix(name, "__")
		}
		return nil
	})
	own := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return builtin[name] })
	return own, err
}
