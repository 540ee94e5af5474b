package feed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/listen"
)

// URIPrefix begins the URIs of topics as MCP resources (specification F-28): the
// topic's name follows, and StateSuffix for the current state of its keys.
const (
	URIPrefix   = "ossicle://feed/"
	StateSuffix = "/state"
)

// Defaults of ResourcesOptions.
const (
	DefaultTail   = 256
	DefaultStates = 1000
	DefaultListed = 200
	DefaultSize   = 4 << 20 // bytes
)

// TopicReader reads one topic by its own count, which has no holes, unlike ids.
// feedtest.RunTopics is its contract as tests.
type TopicReader interface {
	// Tail returns the last events of a topic, oldest first: at most limit, and
	// at most size bytes of data but the newest in any case. An unknown topic has
	// none.
	Tail(ctx context.Context, topic string, limit int, size int64) (Tail, error)
	// States returns the latest kept event of every key of a topic, by key: the
	// limit and size as above, of the latest keys. More says that there are others.
	States(ctx context.Context, topic string, limit int, size int64) (states []Event, more bool, err error)
}

// Tail is the end of a topic, all of one moment.
type Tail struct {
	Epoch  string
	Events []Event
	// Total counts the events that the topic ever had: the last of Events is the
	// one with that number, and those before it count down one by one. Where topics
	// were forgotten, one that is made later counts on from the longest of them.
	Total int64
}

// TopicLister lists topics; every Store does.
type TopicLister interface {
	Topics(ctx context.Context) ([]Topic, error)
}

// levelsAbove are kept free for what a body, and who reads it, puts around the data
// of an event. One that is nested more deeply would make the whole body unreadable,
// for as long as it is among the last of its topic.
const levelsAbove = 10

// ResourcesOptions bound Resources. Zero fields take the defaults.
type ResourcesOptions struct {
	Tail   int   // events of one read of a topic
	States int   // keys of one read of a state
	Listed int   // topics that are listed one by one; the template stands for all
	Size   int64 // bytes of data of one read
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// Resources are the topics of a log as a listen.Source: each an event log, and
// the state of its keys. Announcements carry no payload and are coalesced, so
// that many events cost a few of them. Nothing is kept for a watcher but its
// place in the hub.
type Resources struct {
	hub    *Hub
	topics TopicLister
	reader TopicReader
	o      ResourcesOptions
}

var _ listen.Source = (*Resources)(nil)

// NewResources returns the topics of the hub's log as resources.
func NewResources(hub *Hub, topics TopicLister, reader TopicReader, o *ResourcesOptions) *Resources {
	r := &Resources{hub: hub, topics: topics, reader: reader}
	if o != nil {
		r.o = *o
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&r.o.Tail, DefaultTail}, {&r.o.States, DefaultStates}, {&r.o.Listed, DefaultListed}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if r.o.Size <= 0 {
		r.o.Size = DefaultSize
	}
	if r.o.Logger == nil {
		r.o.Logger = slog.New(slog.DiscardHandler)
	}
	return r
}

// TopicURI is the URI of a topic's event log.
func TopicURI(topic string) string { return URIPrefix + topic }

// Owns implements listen.Source.
func (r *Resources) Owns(uri string) bool { return strings.HasPrefix(uri, URIPrefix) }

// List implements listen.Source. The topics with the newest events come first.
func (r *Resources) List(ctx context.Context) (listen.Listing, error) {
	all, err := r.topics.Topics(ctx)
	if err != nil {
		return listen.Listing{}, fmt.Errorf("list topics: %w", err)
	}
	slices.SortFunc(all, func(a, b Topic) int {
		if a.Last != b.Last {
			return int(min(max(b.Last-a.Last, -1), 1))
		}
		return strings.Compare(a.Name, b.Name)
	})
	listing := listen.Listing{Templates: []listen.Template{
		{
			URITemplate: URIPrefix + "{topic}", Name: "feed-topic", Title: "Events of a topic", MIMEType: listen.EventLogMIME,
			Description: "The last events of a topic of the feed. " + example("incidents", URIPrefix+"incidents"),
		},
		{
			URITemplate: URIPrefix + "{topic}" + StateSuffix, Name: "feed-state", Title: "State of a topic", MIMEType: "application/json",
			Description: "The latest event of every key of a topic. " + example("incidents", URIPrefix+"incidents"+StateSuffix),
		},
	}}
	for _, t := range all[:min(len(all), r.o.Listed)] {
		listing.Resources = append(listing.Resources, listen.Resource{
			URI: TopicURI(t.Name), Name: t.Name, Title: "Events of " + t.Name, MIMEType: listen.EventLogMIME,
			Description: fmt.Sprintf("The last events of the topic; %d are kept. %s", t.Count, example(t.Name, TopicURI(t.Name))),
		})
	}
	return listing, nil
}

// example ends a description with a call that a model can use as it is.
func example(name, uri string) string {
	return "Example: await watch_start(name=" + strconv.Quote(name) + ", uri=" + strconv.Quote(uri) + ")"
}

// split takes a URI apart.
func split(uri string) (topic string, state bool, err error) {
	name, ok := strings.CutPrefix(uri, URIPrefix)
	if !ok {
		return "", false, &listen.NotFoundError{URI: uri, Hint: "topics are " + URIPrefix + "TOPIC"}
	}
	topic, state = strings.CutSuffix(name, StateSuffix)
	if err := CheckTopic(topic); err != nil {
		return "", false, &listen.NotFoundError{URI: uri, Hint: err.Error()}
	}
	return topic, state, nil
}

// Watch implements listen.Source. A topic that has no events yet can be watched.
func (r *Resources) Watch(_ context.Context, uri string, changed func()) (stop func(), err error) {
	topic, _, err := split(uri)
	if err != nil {
		return nil, err
	}
	filter, err := ParseFilter(topic)
	if err != nil {
		return nil, err
	}
	var stopped atomic.Bool
	sub, err := r.hub.Subscribe(Subscribe{Filter: filter, Wake: func() {
		if !stopped.Load() {
			changed()
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", uri, err)
	}
	return func() {
		stopped.Store(true)
		sub.Close()
	}, nil
}

// Read implements listen.Source.
func (r *Resources) Read(ctx context.Context, uri string, o listen.ReadOptions) ([]listen.Contents, error) {
	topic, state, err := split(uri)
	if err != nil {
		return nil, err
	}
	if state {
		return r.readState(ctx, uri, topic)
	}
	tail, err := r.reader.Tail(ctx, topic, r.o.Tail, r.o.Size)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	return []listen.Contents{{URI: uri, MIMEType: listen.EventLogMIME, Text: logBody(tail, o.After)}}, nil
}

// logBody is the body of an event log (specification W-018): seq is the count
// within the topic, which has no holes, and log names the epoch.
func logBody(t Tail, after *int64) string {
	first := t.Total - int64(len(t.Events)) + 1
	events := t.Events
	// A cursor ahead of the log is of another one: it gets all there is.
	if after != nil && *after <= t.Total && *after >= first {
		events = events[*after-first+1:]
		first = *after + 1
	}
	b := append([]byte(`{"log":`), quote(t.Epoch)...)
	b = strconv.AppendInt(append(b, `,"last_seq":`...), t.Total, 10)
	b = append(b, `,"events":[`...)
	for i := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"seq":`...), first+int64(i), 10)
		b = append(appendEvent(append(b, ','), &events[i]), '}')
	}
	return string(append(b, "]}"...))
}

// appendEvent appends the members of an event. Its data is the object of the
// change (specification W-019); old values are where the source put them.
func appendEvent(b []byte, e *Event) []byte {
	b = append(append(b, `"type":`...), quote(e.Type)...)
	b = strconv.AppendInt(append(b, `,"id":`...), e.ID, 10)
	if e.Key != "" {
		b = append(append(b, `,"key":`...), quote(e.Key)...)
	}
	b = append(append(b, `,"time":`...), quote(e.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00"))...)
	if !jsonx.Fits(e.Data, levelsAbove) {
		return append(b, `,"object":{"omitted":"nested too deeply for a resource; the event stream has it"}`...)
	}
	return append(append(b, `,"object":`...), e.Data...)
}

func quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // invalid UTF-8 becomes U+FFFD, and the quoted text is there
	return b
}

// readState is the current state as one JSON object by key, small enough to be
// compared as a whole.
func (r *Resources) readState(ctx context.Context, uri, topic string) ([]listen.Contents, error) {
	states, more, err := r.reader.States(ctx, topic, r.o.States, r.o.Size)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", uri, err)
	}
	if more {
		r.o.Logger.LogAttrs(ctx, slog.LevelWarn, "a state has more keys than one read shows; watch the events instead", logattr.URI(uri), logattr.Count(len(states)))
	}
	b := []byte{'{'}
	for i := range states {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quote(states[i].Key)...), ':', '{')
		b = append(appendEvent(b, &states[i]), '}')
	}
	return []listen.Contents{{URI: uri, MIMEType: "application/json", Text: string(append(b, '}'))}}, nil
}
