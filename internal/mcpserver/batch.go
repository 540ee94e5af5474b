package mcpserver

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxBatch bounds the messages of a batch.
const maxBatch = 100

// batch gathers the answers to the requests that came in one array, as legacy
// revisions up to 2025-03-26 have it.
type batch struct {
	mu      sync.Mutex
	waiting int
	answers [][]byte
}

// expect counts a request that will be answered by a session.
func (b *batch) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting++
}

// add adds an answer at once.
func (b *batch) add(answer []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = append(b.answers, answer)
}

// done counts one request as answered; with the last one it returns the line.
// A nil answer is for a request that was cancelled.
func (b *batch) done(answer []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer != nil {
		b.answers = append(b.answers, answer)
	}
	b.waiting--
	if b.waiting > 0 || len(b.answers) == 0 {
		return nil
	}
	line := append([]byte{'['}, bytes.Join(b.answers, []byte{','})...)
	return append(line, ']', '\n')
}

// takeBatch takes an array of messages apart.
func (p *pipe) takeBatch(line []byte) {
	p.mu.Lock()
	version := p.legacyVersion
	p.mu.Unlock()
	var messages []jsontext.Value
	err := json.Unmarshal(line, &messages)
	switch {
	case err != nil:
		p.refuse(nil, newError(codeParseError, "this is not one JSON-RPC message: "+err.Error(), nil))
		return
	case version == "" || version > lastBatchVersion:
		p.refuse(nil, newError(codeInvalidRequest, "batches are of revision "+lastBatchVersion+": send one message a line", nil))
		return
	case len(messages) == 0 || len(messages) > maxBatch:
		p.refuse(nil, newError(codeInvalidRequest, fmt.Sprintf("a batch has 1 to %d messages", maxBatch), nil))
		return
	}
	// One more than it has requests, so that it is not over before it is taken
	// apart.
	b := &batch{waiting: 1}
	for _, m := range messages {
		p.take(m, b)
	}
	if out := b.done(nil); out != nil {
		_ = p.out.write(out, p.ended)
	}
}

// fill adds the answer of a session to its batch.
func (p *pipe) fill(c *call, resp *jsonrpc.Response, abort <-chan struct{}) error {
	var answer []byte
	if !c.cancelled {
		var err error
		if answer, err = jsonrpc.EncodeMessage(resp); err != nil {
			return fmt.Errorf("encode message: %w", err)
		}
	}
	if line := c.batch.done(answer); line != nil {
		return p.out.write(line, abort)
	}
	return nil
}
