package kubernetes

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// tracker knows the sandboxes of a namespace, whoever made them: a gateway may
// have taken the session over. It knows nothing of clocks and connections: what
// the watches saw goes in, what there is to tell comes out. The cluster's own
// bounds are its bounds; of each sandbox it keeps a few lines.
type tracker struct {
	boxes map[string]*box // by the name of the Job
	// over are the uids of the last Jobs whose end was told: the watch of pods may be
	// behind that of Jobs, and say later what was told already.
	over []string
}

// maxOver bounds that. What falls out may be told again, of a session that is over.
const maxOver = 256

// box is a sandbox: a Job, and what pods it has had.
type box struct {
	session string
	uid     string // of the Job, once it is known
	job     bool   // it is there
	gone    bool   // it was, and was deleted
	done    *Exit
	pods    map[string]pod // by uid, while they are there
	seen    int
	last    Exit // of the pod that ended last
	refused trouble

	// giveUp is when a sandbox of ours that has not begun is given up, in time for
	// whoever waits to hear why. Zero for others'.
	giveUp  time.Time
	trouble trouble
	since   time.Time // of trouble

	told, twice bool
}

// outcome is something to tell about a session.
type outcome struct {
	session string
	exit    *Exit
	note    *Note
}

// change is what a watch saw: one object, or all there are.
type change struct {
	resource string
	object   object
	deleted  bool
	all      []object // of a list; then object is not set
	listed   bool
}

func newTracker() *tracker { return &tracker{boxes: map[string]*box{}} }

// expect tells of a sandbox that is about to be made.
func (t *tracker) expect(session string, giveUp time.Time) {
	b := t.box(objectName(session), session, "")
	b.giveUp = giveUp
	b.told, b.twice, b.gone, b.done = false, false, false, nil
}

// forget tells that nobody waits for a sandbox any more.
func (t *tracker) forget(session string) {
	name := objectName(session)
	if b := t.boxes[name]; b != nil {
		b.giveUp = time.Time{}
		t.sweep(name)
	}
}

// box is what is known of a sandbox; nil if its end was told and nothing is left.
func (t *tracker) box(name, session, uid string) *box {
	b := t.boxes[name]
	if b == nil {
		if uid != "" && slices.Contains(t.over, uid) {
			return nil
		}
		b = &box{session: session, pods: map[string]pod{}}
		t.boxes[name] = b
	}
	b.uid = cmp.Or(uid, b.uid)
	return b
}

// sweep drops a sandbox of which nothing is left.
func (t *tracker) sweep(name string) {
	b := t.boxes[name]
	if b != nil && !b.job && len(b.pods) == 0 && (b.giveUp.IsZero() || b.told) {
		delete(t.boxes, name)
		if b.told && b.uid != "" {
			t.over = append(t.over, b.uid)
			t.over = t.over[max(0, len(t.over)-maxOver):]
		}
	}
}

// apply takes what a watch saw.
func (t *tracker) apply(c change, now time.Time) []outcome {
	touched := map[string]bool{}
	if c.listed {
		t.relist(c, touched)
	} else if name, ok := t.take(c.resource, c.object, c.deleted); ok {
		touched[name] = true
	}
	var out []outcome
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		out = append(out, t.settle(t.boxes[name], now)...)
		t.sweep(name)
	}
	return out
}

// relist takes a complete list: what it does not have is gone.
func (t *tracker) relist(c change, touched map[string]bool) {
	present := map[string]bool{}
	for _, o := range c.all {
		present[o.Metadata.UID] = true
		if c.resource == "jobs" {
			present[o.Metadata.Name] = true
		}
		if name, ok := t.take(c.resource, o, false); ok {
			touched[name] = true
		}
	}
	for name, b := range t.boxes {
		switch c.resource {
		case "jobs":
			if b.job && !present[name] {
				b.job, b.gone = false, true
				touched[name] = true
			}
		case "pods":
			for uid, p := range b.pods {
				if !present[uid] {
					b.lost(uid, Exit{Reason: ReasonDeleted, Code: -1, Pod: p.name})
					touched[name] = true
				}
			}
		}
	}
}

// take takes one object, and returns whose it is.
func (t *tracker) take(resource string, o object, deleted bool) (name string, ok bool) {
	switch resource {
	case "jobs":
		return t.takeJob(o, deleted)
	case "pods":
		return t.takePod(o, deleted)
	default:
		name = o.InvolvedObject.Name
		b := t.boxes[name]
		if b == nil || deleted || b.seen > 0 {
			return "", false
		}
		b.refused = refusedPod(o)
		return name, true
	}
}

func (t *tracker) takeJob(o object, deleted bool) (string, bool) {
	name := o.Metadata.Name
	session, ok := o.session(name)
	if !ok || deleted && t.boxes[name] == nil {
		return "", false
	}
	b := t.box(name, session, o.Metadata.UID)
	if b == nil {
		return "", false
	}
	b.job, b.gone = !deleted, deleted
	for _, kind := range []string{"FailureTarget", "Failed"} {
		if c, ok := o.Status.condition(kind); ok {
			b.done = &Exit{Reason: ReasonFailed, Code: -1, Detail: plain(c.Reason + ": " + c.Message)}
			if c.Reason == "DeadlineExceeded" {
				b.done.Reason = ReasonDeadline
			}
		}
	}
	if _, ok := o.Status.condition("Complete"); ok {
		b.done = &Exit{Reason: ReasonExited, Code: 0}
	}
	return name, true
}

func (t *tracker) takePod(o object, deleted bool) (string, bool) {
	owner := o.job()
	name, uid := owner.Name, o.Metadata.UID
	session, ok := o.session(name)
	if !ok || uid == "" || deleted && t.boxes[name] == nil {
		return "", false
	}
	b := t.box(name, session, owner.UID)
	if b == nil {
		return "", false
	}
	before, known := b.pods[uid]
	if !known {
		if deleted { // it was not there when we began to look
			return name, true
		}
		b.seen++
		b.refused = trouble{}
	}
	p := readPod(o)
	if p.over && !before.over {
		b.last = p.exit
	}
	b.pods[uid] = p
	if deleted {
		b.lost(uid, goneExit(o))
	}
	return name, true
}

// lost takes a pod away, which ended so if it had not ended before.
func (b *box) lost(uid string, e Exit) {
	if !b.pods[uid].over {
		b.last = e
	}
	delete(b.pods, uid)
}

// live are the pods that have not ended, by name.
func (b *box) live() []string {
	var names []string
	for _, p := range b.pods {
		if !p.over {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}

// settle says what there is to tell of a sandbox.
func (t *tracker) settle(b *box, now time.Time) []outcome {
	if b.told {
		return nil
	}
	live := b.live()
	if e, ended := b.ended(len(live)); ended {
		return []outcome{b.tell(e)}
	}
	var out []outcome
	if len(live) > 1 && !b.twice {
		b.twice = true
		out = append(out, outcome{session: b.session, note: &Note{ReasonSecondPod, plain(live[0] + ", " + live[1])}})
	}
	trouble := b.blocked()
	if trouble.reason != b.trouble.reason {
		b.since = now
		if trouble.reason != "" {
			out = append(out, outcome{session: b.session, note: &Note{trouble.reason, trouble.detail}})
		}
	}
	b.trouble = trouble
	return append(out, b.expire(now)...)
}

// ended reports whether a sandbox is over: each of its pods has ended, or there
// will be none. One of two pods that ends is not the end: it may be the one which
// the gateway refused.
func (b *box) ended(live int) (Exit, bool) {
	switch {
	case live > 0:
		return Exit{}, false
	case b.seen > 0:
		e := b.last
		if b.done != nil && b.done.Reason == ReasonDeadline {
			e.Reason, e.Detail = ReasonDeadline, b.done.Detail
		}
		return e, true
	case b.done != nil:
		e := *b.done
		if b.refused.reason != "" {
			e.Reason, e.Detail = b.refused.reason, b.refused.detail
		}
		return e, true
	case b.gone:
		return Exit{Reason: ReasonDeleted, Code: -1, Detail: "the Job was deleted"}, true
	}
	return Exit{}, false
}

// blocked is what keeps a sandbox from beginning.
func (b *box) blocked() trouble {
	var worst trouble
	for _, p := range b.pods {
		if p.running {
			return trouble{}
		}
		if !p.over && p.trouble.reason > worst.reason { // any, but the same one each time
			worst = p.trouble
		}
	}
	if worst.reason == "" && b.seen == 0 {
		return b.refused
	}
	return worst
}

// due is when the patience with a sandbox of ours ends.
func (b *box) due() (time.Time, bool) {
	if b.told || b.trouble.reason == "" || b.giveUp.IsZero() {
		return time.Time{}, false
	}
	if at := b.since.Add(b.trouble.patience); b.trouble.patience >= 0 && at.Before(b.giveUp) {
		return at, true
	}
	return b.giveUp, true
}

func (b *box) expire(now time.Time) []outcome {
	at, ok := b.due()
	if !ok || now.Before(at) {
		return nil
	}
	return []outcome{b.tell(Exit{Reason: b.trouble.reason, Code: -1, Detail: b.trouble.detail})}
}

func (b *box) tell(e Exit) outcome {
	b.told = true
	return outcome{session: b.session, exit: &e}
}

// expire tells of the sandboxes with which the patience is over.
func (t *tracker) expire(now time.Time) []outcome {
	var out []outcome
	for _, name := range slices.Sorted(maps.Keys(t.boxes)) {
		out = append(out, t.boxes[name].expire(now)...)
		t.sweep(name)
	}
	return out
}

// next is when expire has something to do.
func (t *tracker) next() (first time.Time, ok bool) {
	for _, b := range t.boxes {
		if at, due := b.due(); due && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}
