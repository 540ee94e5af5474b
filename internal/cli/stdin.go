package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/worker"
)

// roomForCommand is what a command may take beside its input in a message, in bytes.
const roomForCommand = 256 << 10

// commandInput reads in to its end, as the standard input of a command in a sandbox.
// It reads no further than it can be sent, and ends with ctx; what then still waits for
// in ends with the process, as nothing interrupts a read of a pipe that is not ours.
func commandInput(ctx context.Context, in io.Reader) (string, error) {
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(in, fleet.MaxStdin+1))
		read <- input{text, err}
	}()
	var got input
	select {
	case <-ctx.Done():
		return "", errInterrupted
	case got = <-read:
	}
	quoted, _ := jsontext.AppendQuote(nil, got.text)
	switch {
	case got.err != nil:
		return "", fmt.Errorf("read standard input: %w", got.err)
	case len(got.text) > fleet.MaxStdin:
		return "", &usageError{fmt.Errorf("--stdin: standard input has more than %d bytes, which is the most; send it in pieces, say with split, and put them together in the sandbox", fleet.MaxStdin)}
	case !utf8.Valid(got.text): // JSON would mend it
		return "", &usageError{errors.New("--stdin: standard input is no UTF-8; send base64, and have the command read 'base64 -d |'")}
	case len(quoted) > worker.MaxMessage-roomForCommand:
		return "", &usageError{errors.New("--stdin: standard input has too many control characters to be sent at once; send base64, and have the command read 'base64 -d |'")}
	}
	return string(got.text), nil
}
