package kubernetes

import (
	"fmt"

	"github.com/ossicle/ossicle/worker"
)

// Reason says why a sandbox ended, or what keeps it from beginning.
type Reason string

// Reasons.
const (
	ReasonExited        Reason = "exited"          // the worker ended by itself, or was told to
	ReasonMemory        Reason = "oom_killed"      // it used more memory than it may
	ReasonEvicted       Reason = "evicted"         // the node had no room left, or it wrote more than it may
	ReasonDisrupted     Reason = "disrupted"       // drained, preempted, or its node is gone
	ReasonDeadline      Reason = "active_deadline" // the cluster's own deadline
	ReasonDeleted       Reason = "deleted"         // somebody deleted it
	ReasonFailed        Reason = "failed"          // ended without an exit code
	ReasonImage         Reason = "image_pull"      // the image cannot be had
	ReasonContainer     Reason = "container"       // the container cannot be made
	ReasonUnschedulable Reason = "unschedulable"   // no node takes it
	ReasonQuota         Reason = "quota"           // the namespace may hold no more
	ReasonRefused       Reason = "refused"         // the cluster makes no such pod
	ReasonSecondPod     Reason = "second_pod"      // the cluster made two pods for one session
)

// meanings are what reasons say to people.
var meanings = map[Reason]string{
	ReasonExited:        "the worker ended",
	ReasonMemory:        "the worker used more memory than it may",
	ReasonEvicted:       "the node threw the pod out",
	ReasonDisrupted:     "the cluster ended the pod",
	ReasonDeadline:      "the Job's deadline passed",
	ReasonDeleted:       "the pod was deleted",
	ReasonFailed:        "the pod failed",
	ReasonImage:         "the image cannot be pulled",
	ReasonContainer:     "the container cannot be made",
	ReasonUnschedulable: "no node takes the pod",
	ReasonQuota:         "a quota of the namespace is exhausted",
	ReasonRefused:       "the cluster refuses the pod",
	ReasonSecondPod:     "the cluster made a second pod",
}

// exitMeanings are those of a worker's exit codes.
var exitMeanings = map[worker.ExitCode]string{
	worker.ExitReleased: "released",
	worker.ExitTempFail: "the gateway fell silent",
	worker.ExitNoPerm:   "token or session refused",
	worker.ExitConfig:   "version or configuration",
}

// Exit is how a sandbox ended, or why it never began.
type Exit struct {
	Reason Reason
	// Code is the exit code of the worker, -1 if there is none.
	Code int
	// Pod is the name of the pod, if there was one.
	Pod string
	// Detail is one bounded line in the words of the cluster, in part of the
	// sandbox. It is text from outside.
	Detail string
}

// String is one line that begins with the reason.
func (e Exit) String() string {
	s := string(e.Reason) + ": " + meanings[e.Reason]
	if e.Code >= 0 {
		s += fmt.Sprintf(", exit code %d", e.Code)
		if m := exitMeanings[worker.ExitCode(e.Code)]; m != "" {
			s += " (" + m + ")"
		}
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Note is something about a sandbox that is no end: it waits for something, or
// there are two of it.
type Note struct {
	Reason Reason
	Detail string // one bounded line, text from outside
}

// String is one line that begins with the reason.
func (n Note) String() string {
	s := string(n.Reason) + ": " + meanings[n.Reason]
	if n.Detail != "" {
		s += ": " + n.Detail
	}
	return s
}
