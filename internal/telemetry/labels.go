package telemetry

import "sync"

// other stands for the values beyond the bound.
const other = "other"

// labels bounds the values of a label: the first so many stand for themselves.
type labels struct {
	most int

	mu    sync.RWMutex
	known map[string]struct{}
}

func newLabels(most int) *labels { return &labels{most: most, known: map[string]struct{}{}} }

// of is the value to use for v.
func (l *labels) of(v string) string {
	l.mu.RLock()
	_, known := l.known[v]
	l.mu.RUnlock()
	if known {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.known[v]; !known {
		if len(l.known) >= l.most {
			return other
		}
		l.known[v] = struct{}{}
	}
	return v
}
