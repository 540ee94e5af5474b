package kubernetes

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// model is a namespace in which anything happens in any order, and what the watches
// of it see: each kind of objects in its order, but not one kind with another.
type model struct {
	rng  *rand.Rand
	jobs map[string]object
	pods map[string]object
	made map[string]bool
	// unseen are the changes that a watch has not taken yet.
	unseen map[string][]change
	next   int
	uid    map[string]string // of Jobs, by name
}

func (m *model) see(resource string, o object, deleted bool) {
	m.unseen[resource] = append(m.unseen[resource], change{resource: resource, object: o, deleted: deleted})
}

// step does one thing to the namespace.
func (m *model) step() {
	session := fmt.Sprintf("s_%d", m.rng.IntN(3)) // no DNS label: the name is a hash
	name := objectName(session)
	switch m.rng.IntN(8) {
	case 0:
		if _, ok := m.jobs[name]; !ok && !m.made[session] {
			m.made[session] = true // a session has one sandbox
			m.next++
			o := object{Metadata: readMeta{Name: name, UID: fmt.Sprint("j", m.next), Annotations: map[string]string{annotationSession: session}}}
			m.jobs[name], m.uid[name] = o, o.Metadata.UID
			m.see("jobs", o, false)
		}
	case 1:
		if o, ok := m.jobs[name]; ok {
			o.Status.Conditions = []condition{{Type: "Failed", Status: "True", Reason: "DeadlineExceeded"}}
			m.jobs[name] = o
			m.see("jobs", o, false)
		}
	case 2:
		if o, ok := m.jobs[name]; ok {
			delete(m.jobs, name)
			m.see("jobs", o, true)
		}
	case 3, 4:
		if _, ok := m.jobs[name]; !ok {
			return
		}
		m.next++
		o := object{Metadata: readMeta{
			Name: fmt.Sprint("p", m.next), UID: fmt.Sprint("p", m.next), Annotations: map[string]string{annotationSession: session},
			OwnerReferences: []readOwner{{Kind: "Job", Name: name, UID: m.uid[name], Controller: true}},
		}}
		o.Status.Phase = "Pending"
		m.pods[o.Metadata.UID] = o
		m.see("pods", o, false)
	case 5, 6:
		for uid, o := range m.pods {
			o.Status.Phase = []string{"Running", "Failed", "Succeeded"}[m.rng.IntN(3)]
			m.pods[uid] = o
			m.see("pods", o, false)
			break
		}
	case 7:
		for uid, o := range m.pods {
			delete(m.pods, uid)
			m.see("pods", o, true)
			break
		}
	}
}

// deliver has the tracker take a change, or a list of all there is in its stead.
func (m *model) deliver(tr *tracker, now time.Time) []outcome {
	for _, resource := range []string{"jobs", "pods"}[m.rng.IntN(2):] {
		queue := m.unseen[resource]
		switch {
		case len(queue) == 0:
		case m.rng.IntN(10) == 0: // the watch was lost, and what it had not said with it
			m.unseen[resource] = nil
			c := change{resource: resource, listed: true}
			for _, o := range map[string]map[string]object{"jobs": m.jobs, "pods": m.pods}[resource] {
				c.all = append(c.all, o)
			}
			return tr.apply(c, now)
		default:
			m.unseen[resource] = queue[1:]
			return tr.apply(queue[0], now)
		}
	}
	return nil
}

// Whatever happens in whatever order: nobody is told twice of one end of a sandbox
// that was made here, nobody is told of an end while a pod is seen to live, and of
// sandboxes that are gone nothing is kept.
func TestTrackerInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		m := &model{rng: rand.New(rand.NewPCG(seed, 1)), jobs: map[string]object{}, pods: map[string]object{}, made: map[string]bool{}, uid: map[string]string{}, unseen: map[string][]change{}}
		tr, now := newTracker(), time.Unix(0, 0)
		told := map[string]int{}
		hear := func(out []outcome) {
			for _, o := range out {
				if o.exit == nil {
					continue
				}
				told[o.session]++
				if b := tr.boxes[objectName(o.session)]; b != nil && len(b.live()) > 0 && o.exit.Reason != b.trouble.reason {
					t.Fatalf("seed %d: %s ended with %v, and %v live", seed, o.session, o.exit, b.live())
				}
			}
		}
		tr.expect("s_0", now.Add(time.Minute))
		for range 60 {
			m.step()
			if m.rng.IntN(3) > 0 {
				hear(m.deliver(tr, now))
			}
			now = now.Add(time.Second)
			hear(tr.expire(now))
		}
		for session, n := range told {
			if n > 1 {
				t.Fatalf("seed %d: told %d times of %s", seed, n, session)
			}
		}
		for name, o := range m.jobs {
			delete(m.jobs, name)
			m.see("jobs", o, true)
		}
		for uid, o := range m.pods {
			delete(m.pods, uid)
			m.see("pods", o, true)
		}
		tr.forget("s_0")
		for len(m.unseen["jobs"])+len(m.unseen["pods"]) > 0 {
			hear(m.deliver(tr, now))
		}
		if len(tr.boxes) != 0 {
			t.Fatalf("seed %d: kept %v", seed, tr.boxes)
		}
		if _, due := tr.next(); due {
			t.Fatalf("seed %d: still waits", seed)
		}
	}
}
