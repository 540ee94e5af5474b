package feed

import (
	"fmt"
	"time"
)

const (
	// MaxTopics bounds the topics of a log. The topics of captured tables are made
	// in any case, since no transaction of theirs may fail.
	MaxTopics = 100_000
	// ForgetAfter is how long a topic has neither events nor idempotency keys before
	// a Keeper has it forgotten. Processes of an older version do not know how to
	// tell of such topics, so it is also the time that replacing them may take.
	ForgetAfter = 7 * 24 * time.Hour
)

// TopicsError refuses events of a topic that would be one too many. Nothing of
// the batch was published.
type TopicsError struct {
	Topic string
	Max   int64 // topics that there may be
}

func (e *TopicsError) Error() string {
	return fmt.Sprintf("topic %q is new, and there are %d topics, which is as many as there may be: publish to one of them, with a key for each thing of which there are many; "+
		"a topic makes room %d days after its last event is removed by age", e.Topic, e.Max, ForgetAfter/(24*time.Hour))
}
