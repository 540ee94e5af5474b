package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// maxNoiseRow is how many lines in a row may be no frames before the
	// connection is given up.
	maxNoiseRow = 10
	// maxNoiseLine bounds what is kept of such a line, in bytes.
	maxNoiseLine = 200
	// writeTimeout bounds one write to a child: one that takes no input for so
	// long is dead.
	writeTimeout = 10 * time.Second
	// salvageLimit is how much of a line over the limit is searched for its id.
	salvageLimit = 64 << 10
)

// noise counts what a server wrote to its standard output that is no frame.
type noise struct {
	mu    sync.Mutex
	total int
	row   int
	lines []string // the last ones
}

// add counts one line and returns an error when there are too many in a row.
func (n *noise) add(line []byte) error {
	if len(line) > maxNoiseLine {
		line = line[:maxNoiseLine]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total++
	n.row++
	n.lines = append(n.lines, strings.ToValidUTF8(string(line), "\uFFFD"))
	if len(n.lines) > maxNoiseRow {
		n.lines = n.lines[1:]
	}
	if n.row < maxNoiseRow {
		return nil
	}
	return &NoiseError{Lines: append([]string(nil), n.lines...)}
}

func (n *noise) frame() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.row = 0
}

func (n *noise) snapshot() (total int, lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.total, append([]string(nil), n.lines...)
}

// lineConn speaks newline-delimited JSON-RPC over pipes that it does not trust.
// A log line between the frames is counted and skipped, a frame that is too
// large or malformed fails the call that waits for it, and the stream stays in
// step. It is its own [mcp.Transport], for one connection.
type lineConn struct {
	r     *bufio.Reader
	w     io.WriteCloser
	stop  func() // ends the peer; reads end with it
	noise *noise
	log   *slog.Logger

	queue []jsonrpc.Message // rest of a batch; only Read uses it

	wmu    sync.Mutex
	broken error // under wmu: a write failed half-way

	once sync.Once

	emu sync.Mutex
	end error // under emu: why Read ended, where that is not the end of the pipe
}

func newLineConn(r io.Reader, w io.WriteCloser, stop func(), log *slog.Logger) *lineConn {
	return &lineConn{r: bufio.NewReaderSize(r, 64<<10), w: w, stop: stop, noise: &noise{}, log: log}
}

func (c *lineConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

func (c *lineConn) SessionID() string { return "" }

func (c *lineConn) Close() error {
	c.once.Do(c.stop)
	return nil
}

// Read returns the next frame. It ends when the peer does, or by Close.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if len(c.queue) > 0 {
			msg := c.queue[0]
			c.queue = c.queue[1:]
			return msg, nil
		}
		line, cut, err := c.readLine()
		if len(line) > 0 || cut {
			if bad := c.take(ctx, line, cut); bad != nil {
				c.emu.Lock()
				c.end = bad
				c.emu.Unlock()
				return nil, bad
			}
		}
		if err != nil && len(c.queue) == 0 {
			return nil, endOf(err)
		}
	}
}

// ended returns why the connection was given up, or nil. The SDK words it, and
// loses its type.
func (c *lineConn) ended() error {
	c.emu.Lock()
	defer c.emu.Unlock()
	return c.end
}

// endOf makes one error of the ways in which a pipe ends.
func endOf(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return io.EOF
	}
	return err
}

// readLine reads one line. Of one over the limit it keeps the beginning and
// skips the rest.
func (c *lineConn) readLine() (line []byte, cut bool, err error) {
	for {
		chunk, err := c.r.ReadSlice('\n')
		switch {
		case cut:
		case len(line)+len(chunk) > maxFrame+1:
			line, cut = bytes.Clone(append(line, chunk...)[:salvageLimit]), true
		default:
			line = append(line, chunk...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), cut, err
		}
	}
}

// take puts the messages of a line into the queue. It returns an error when the
// connection is to end.
func (c *lineConn) take(ctx context.Context, line []byte, cut bool) error {
	if cut {
		return c.takeCut(ctx, line)
	}
	if line[0] == '[' { // batches are of revision 2025-03-26
		var batch []jsontext.Value
		if json.Unmarshal(line, &batch, lax) == nil && len(batch) > 0 && batch[0].Kind() == '{' {
			for _, raw := range batch {
				if err := c.takeOne(ctx, raw); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return c.takeOne(ctx, line)
}

func (c *lineConn) takeOne(ctx context.Context, raw []byte) error {
	h, notMessage, err := checkFrame(raw)
	if err == nil {
		var msg jsonrpc.Message
		if msg, err = jsonrpc.DecodeMessage(raw); err == nil {
			c.noise.frame()
			c.queue = append(c.queue, msg)
			return nil
		}
		err = &FrameError{Problem: err.Error()}
	}
	if notMessage {
		c.log.LogAttrs(ctx, slog.LevelDebug, "skipped a line that is no message", logattr.Size(int64(len(raw))))
	} else {
		c.skipped(ctx, h.ID, err)
	}
	return c.noise.add(raw)
}

// takeCut handles the beginning of a line over the limit.
func (c *lineConn) takeCut(ctx context.Context, start []byte) error {
	id, version := salvage(start)
	if version == "2.0" || id != nil {
		c.skipped(ctx, id, &FrameError{Problem: fmt.Sprintf("over %d bytes", maxFrame)})
	}
	return c.noise.add(start)
}

// skipped fails the call, if any, whose answer was skipped.
func (c *lineConn) skipped(ctx context.Context, id jsontext.Value, err error) {
	c.log.LogAttrs(ctx, slog.LevelWarn, "skipped a bad message", logattr.Err(err))
	if resp := failure(id, err); resp != nil {
		c.queue = append(c.queue, resp)
	}
}

// Write writes one frame. It takes at most writeTimeout whatever ctx says,
// because half a frame would be the last one.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if d, ok := c.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	if _, err := c.w.Write(append(data, '\n')); err != nil {
		c.broken = fmt.Errorf("write to server: %w", endOf(err))
		return c.broken
	}
	return nil
}
