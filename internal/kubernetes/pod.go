package kubernetes

import "time"

// pod is what is known of one pod.
type pod struct {
	name    string
	over    bool
	running bool
	exit    Exit // once it is over
	trouble trouble
}

// trouble keeps a sandbox from beginning.
type trouble struct {
	reason Reason
	detail string
	// patience is how long it may last; negative is as long as a worker may take to
	// call home.
	patience time.Duration
}

// How long what keeps a pod from beginning may last. A pull is tried again after
// ten seconds; a node may yet come, and a quota be freed.
const (
	noPatience    = 0
	shortPatience = 10 * time.Second
	pullPatience  = 20 * time.Second
	fullPatience  = -1
)

// waiting has what a container waits for, and will not get by waiting.
var waiting = map[string]struct {
	reason   Reason
	patience time.Duration
}{
	"ErrImagePull":               {ReasonImage, pullPatience},
	"ImagePullBackOff":           {ReasonImage, pullPatience},
	"RegistryUnavailable":        {ReasonImage, pullPatience},
	"ImageInspectError":          {ReasonImage, pullPatience},
	"SignatureValidationFailed":  {ReasonImage, noPatience},
	"ErrImageNeverPull":          {ReasonImage, noPatience},
	"InvalidImageName":           {ReasonImage, noPatience},
	"CreateContainerConfigError": {ReasonContainer, shortPatience},
	"CreateContainerError":       {ReasonContainer, shortPatience},
	"RunContainerError":          {ReasonContainer, shortPatience},
	"PreCreateHookError":         {ReasonContainer, shortPatience},
	"PreStartHookError":          {ReasonContainer, shortPatience},
	"CreatePodSandboxError":      {ReasonContainer, fullPatience},
	"ConfigPodSandboxError":      {ReasonContainer, fullPatience},
}

// readPod says how a pod stands.
func readPod(o object) pod {
	p := pod{name: plain(o.Metadata.Name)}
	s := o.Status
	w := s.worker().State
	switch {
	case s.Phase == "Failed" || s.Phase == "Succeeded" || w.Terminated != nil:
		p.over, p.exit = true, exitOf(p.name, s)
	case w.Running != nil:
		p.running = true
	default:
		p.trouble = troubleOf(s)
	}
	return p
}

// exitOf is how a pod that is over ended. What the cluster did to it says more
// than the exit code that followed.
func exitOf(name string, s readStatus) Exit {
	e := Exit{Reason: ReasonFailed, Code: -1, Pod: name, Detail: plain(s.Message)}
	if t := s.worker().State.Terminated; t != nil {
		e.Reason, e.Code = ReasonExited, t.ExitCode
		if t.Reason == "OOMKilled" {
			e.Reason = ReasonMemory
		}
		if text := plain(t.Message); text != "" {
			e.Detail = text
		}
	} else if s.Phase == "Succeeded" {
		e.Reason, e.Code = ReasonExited, 0
	}
	switch s.Reason {
	case "Evicted":
		e.Reason, e.Detail = ReasonEvicted, plain(s.Message)
	case "DeadlineExceeded":
		e.Reason = ReasonDeadline
	case "NodeLost", "NodeShutdown", "NodeAffinity", "Preempting", "Shutdown", "Terminated", "UnexpectedAdmissionError":
		e.Reason, e.Detail = ReasonDisrupted, plain(s.Reason+": "+s.Message)
	}
	if c, ok := s.condition("DisruptionTarget"); ok && e.Reason != ReasonEvicted && e.Code != 0 {
		e.Reason, e.Detail = ReasonDisrupted, plain(c.Reason+": "+c.Message)
	}
	return e
}

// goneExit is how a pod ended that was taken away while it ran.
func goneExit(o object) Exit {
	e := Exit{Reason: ReasonDeleted, Code: -1, Pod: plain(o.Metadata.Name)}
	if c, ok := o.Status.condition("DisruptionTarget"); ok {
		e.Reason, e.Detail = ReasonDisrupted, plain(c.Reason+": "+c.Message)
	}
	return e
}

// troubleOf is what keeps a pod from running; the zero trouble is nothing.
func troubleOf(s readStatus) trouble {
	if w := s.worker().State.Waiting; w != nil {
		if kind, ok := waiting[w.Reason]; ok {
			return trouble{kind.reason, plain(w.Reason + ": " + w.Message), kind.patience}
		}
	}
	for _, c := range s.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return trouble{ReasonUnschedulable, plain(c.Reason + ": " + c.Message), fullPatience}
		}
	}
	return trouble{}
}

// refusedPod is what an event of a Job says that can have no pod.
func refusedPod(o object) trouble {
	if isQuota(o.Message) {
		return trouble{ReasonQuota, plain(o.Message), fullPatience}
	}
	return trouble{ReasonRefused, plain(o.Message), shortPatience}
}
