package monty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ossicle/ossicle/internal/python"
)

const (
	// maxMessage bounds the message of an exception, in bytes.
	maxMessage = 4 << 10
	// maxSourceLine bounds the line that an error quotes, in bytes.
	maxSourceLine = 400
	// moduleFrame is how the interpreter names module level.
	moduleFrame = "<module>"
)

// Beginnings of the messages that the interpreter itself raises at a limit. A
// program that raises the type by itself does not write them.
const (
	memoryMessage    = "memory limit exceeded"
	recursionMessage = "maximum recursion depth exceeded"
	// abortMessage is in the last words of a child whose allocator refused.
	abortMessage = "exceeds the memory limit"
	// stalledMessage comes when the program awaits what nobody will answer.
	stalledMessage = "asyncio scheduler stalled"
)

// exceptionOf decodes the exception of an Error event.
func exceptionOf(body []byte) *python.Error {
	e := &python.Error{}
	_ = fields(body, func(f field) error {
		if f.num == 1 {
			return fields(f.b, func(f field) error {
				switch f.num {
				case 1:
					e.Type = clip(string(f.b), maxMessage)
				case 2:
					e.Message = clip(string(f.b), maxMessage)
				case 3: // outermost first: the last one stays
					decodeFrame(e, f.b)
				}
				return nil
			})
		}
		return nil
	})
	return e
}

// decodeFrame reads one frame of a traceback. Some exceptions come with a frame
// that is not in any program and points nowhere; it is left out.
func decodeFrame(e *python.Error, b []byte) {
	if strings.HasPrefix(text(b, 1), "\x00") {
		return
	}
	e.Line, e.Col, e.Func, e.SourceLine = 0, 0, "", ""
	_ = fields(b, func(f field) error {
		switch f.num {
		case 2:
			e.Line, e.Col = decodePosition(f.b)
		case 4:
			if name := string(f.b); name != moduleFrame {
				e.Func = clip(name, maxSourceLine)
			}
		case 5:
			e.SourceLine = clip(strings.TrimRight(string(f.b), "\r\n"), maxSourceLine)
		}
		return nil
	})
}

func decodePosition(b []byte) (line, col int) {
	_ = fields(b, func(f field) error {
		if f.typ == protowire.VarintType {
			switch f.num {
			case 1:
				line = int(uint32(f.n))
			case 2:
				col = int(uint32(f.n))
			}
		}
		return nil
	})
	return line, col
}

// raised is the run's error for an exception that nobody caught: a *LimitError
// when the interpreter raised it at a limit, otherwise the exception.
func raised(e *python.Error, memory int) error {
	switch {
	case e.Type == "MemoryError" && strings.HasPrefix(e.Message, memoryMessage):
		return memoryLimit(memory)
	case e.Type == "RecursionError" && strings.HasPrefix(e.Message, recursionMessage):
		return &python.LimitError{Limit: python.LimitRecursion, Text: fmt.Sprintf("more than %d calls deep", recursionLimit)}
	case e.Type == "RuntimeError" && strings.Contains(e.Message, stalledMessage):
		e.Message = "await of a host call of an earlier run"
	}
	return e
}

func memoryLimit(memory int) error {
	return &python.LimitError{Limit: python.LimitMemory, Text: fmt.Sprintf("more than %d bytes", memory)}
}

// crashed is the run's error for a child that died or broke the protocol while
// it ran the program. The child must have ended.
func crashed(w *worker, cause error, memory int) error {
	words := w.lastWords()
	if strings.Contains(words, abortMessage) {
		return memoryLimit(memory)
	}
	why := cause.Error()
	// Its end is known by the end of a pipe, or by that we have closed ours since.
	if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) || errors.Is(cause, syscall.EPIPE) || errors.Is(cause, os.ErrClosed) {
		why = "exit status 0"
		if exit := w.proc.Wait(); exit != nil {
			why = exit.Error()
		}
	}
	return &python.LimitError{Limit: python.LimitCrash, Text: "the interpreter ended: " + why + words}
}

// clip bounds a text from outside and makes it UTF-8.
func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] >= utf8.RuneSelf {
			s = s[:len(s)-1]
		}
		s += "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
