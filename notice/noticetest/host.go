package noticetest

import (
	"context"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/notice"
)

// Host is a notice.Waker with a host behind it that behaves as the test says.
// Without further orders it shows every delivery at once and proves it.
type Host struct {
	// ReachFunc and WakeFunc replace the host's behaviour.
	ReachFunc func(agent string) error
	WakeFunc  func(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error)

	name string

	mu         sync.Mutex
	deliveries []notice.Delivery
	shown      []string
}

// NewHost returns a host that is reached by an adapter of the given name.
func NewHost(name string) *Host { return &Host{name: name} }

// Name implements notice.Waker.
func (h *Host) Name() string { return h.name }

// Reach implements notice.Waker.
func (h *Host) Reach(_ context.Context, agent string) error {
	if h.ReachFunc != nil {
		return h.ReachFunc(agent)
	}
	return nil
}

// Wake implements notice.Waker.
func (h *Host) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	h.mu.Lock()
	h.deliveries = append(h.deliveries, d)
	h.mu.Unlock()
	if h.WakeFunc != nil {
		return h.WakeFunc(ctx, d, proved)
	}
	h.Show(d)
	return notice.Seen, nil
}

// Show puts the delivery before the model.
func (h *Host) Show(d notice.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = append(h.shown, d.IDs()...)
}

// Deliveries returns what was given to the host, in order.
func (h *Host) Deliveries() []notice.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.deliveries)
}

// Shown returns the ids that the model was shown, in order.
func (h *Host) Shown() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.shown)
}
