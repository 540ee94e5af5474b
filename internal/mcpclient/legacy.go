package mcpclient

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

// unsubscribeTimeout bounds the requests that end legacy subscriptions.
const unsubscribeTimeout = 5 * time.Second

// legacyHub gives legacy subscriptions, one request for each URI and nothing
// that says when they end, the form of a listen: a stream of one filter that
// ends with the connection. A URI is subscribed to while any stream has it.
type legacyHub struct {
	cs *mcp.ClientSession // set before first use

	turn chan struct{} // capacity 1: held while subscriptions change

	mu    sync.Mutex
	feeds map[*listen.Feed][]string
	count map[string]int // streams by URI
	dead  error
	wg    sync.WaitGroup
}

func newLegacyHub() *legacyHub {
	return &legacyHub{turn: make(chan struct{}, 1), feeds: map[*listen.Feed][]string{}, count: map[string]int{}}
}

// updated hands an update to the streams. It does not block.
func (h *legacyHub) updated(uri string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.feeds {
		f.Updated(uri)
	}
}

// end ends the streams because the connection ended, and waits for what the hub
// has running.
func (h *legacyHub) end(cause error) {
	h.mu.Lock()
	h.dead = cause
	for f := range h.feeds {
		f.End(listen.EndLost, cause)
	}
	h.feeds = nil
	h.mu.Unlock()
	h.wg.Wait()
}

// open subscribes to each URI of the filter. One that the server refuses is
// left out with the reason; a broken connection fails the whole.
func (h *legacyHub) open(ctx context.Context, filter listen.Filter) (*listen.Stream, error) {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-h.turn }()

	var granted []string
	refused := map[string]error{}
	for _, uri := range filter.ResourceSubscriptions {
		err := h.subscribe(ctx, uri)
		rpc, said := serverError(err)
		switch {
		case err == nil:
			granted = append(granted, uri)
		case said && ctx.Err() == nil:
			refused[uri] = rpc
		default:
			h.release(granted)
			return nil, err
		}
	}
	var stream *listen.Stream
	var feed *listen.Feed
	stream, feed = listen.NewStream(filter, listen.Filter{ResourceSubscriptions: granted}, refused, func() { h.closed(feed) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead != nil {
		feed.End(listen.EndLost, h.dead)
		return stream, nil
	}
	h.feeds[feed] = granted
	return stream, nil
}

// subscribe counts one more stream for the URI, and asks the server for the
// first. Only open calls it, in turn.
func (h *legacyHub) subscribe(ctx context.Context, uri string) error {
	h.mu.Lock()
	first := h.count[uri] == 0
	h.count[uri]++
	h.mu.Unlock()
	if !first {
		return nil
	}
	err := h.cs.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	if err != nil {
		h.mu.Lock()
		h.count[uri]--
		h.mu.Unlock()
	}
	return err
}

// closed is told when a stream was closed on our side.
func (h *legacyHub) closed(feed *listen.Feed) {
	h.mu.Lock()
	uris := h.feeds[feed]
	delete(h.feeds, feed)
	alive := h.dead == nil
	h.mu.Unlock()
	if alive {
		h.release(uris)
	}
}

// release counts one stream less for each URI and tells the server of the last,
// in the background: nobody waits for the answer.
func (h *legacyHub) release(uris []string) {
	if len(uris) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead != nil {
		return
	}
	h.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTimeout)
		defer cancel()
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-h.turn }()
		for _, uri := range uris {
			h.mu.Lock()
			h.count[uri]--
			last := h.count[uri] == 0
			if last {
				delete(h.count, uri)
			}
			h.mu.Unlock()
			if last {
				_ = h.cs.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri})
			}
		}
	})
}
