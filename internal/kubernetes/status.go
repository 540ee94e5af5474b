package kubernetes

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The objects that we read, with the fields that we look at.

type readMeta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	OwnerReferences   []readOwner       `json:"ownerReferences"`
}

type readOwner struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// object is a Pod, a Job or an Event: the watches tell which.
type object struct {
	Metadata readMeta   `json:"metadata"`
	Status   readStatus `json:"status"`
	// Of an Event.
	InvolvedObject struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"involvedObject"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// readStatus is the status of a Pod or a Job.
type readStatus struct {
	Phase             string            `json:"phase"`
	Reason            string            `json:"reason"`
	Message           string            `json:"message"`
	Conditions        []condition       `json:"conditions"`
	ContainerStatuses []containerStatus `json:"containerStatuses"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type containerStatus struct {
	Name  string `json:"name"`
	State struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Running    *struct{} `json:"running"`
		Terminated *struct {
			ExitCode int    `json:"exitCode"`
			Signal   int    `json:"signal"`
			Reason   string `json:"reason"`
			Message  string `json:"message"`
		} `json:"terminated"`
	} `json:"state"`
}

// condition returns the condition of a type if it is true.
func (s readStatus) condition(kind string) (condition, bool) {
	for _, c := range s.Conditions {
		if c.Type == kind && c.Status == "True" {
			return c, true
		}
	}
	return condition{}, false
}

// worker is the state of the worker's container.
func (s readStatus) worker() containerStatus {
	for _, c := range s.ContainerStatuses {
		if c.Name == workerName {
			return c
		}
	}
	return containerStatus{}
}

// session is whose a pod or a Job is. The annotation has the id; that the name is
// the one which that id gives keeps an object from speaking for another session.
func (o object) session(jobName string) (string, bool) {
	id, ok := o.Metadata.Annotations[annotationSession]
	return id, ok && id != "" && objectName(id) == jobName
}

// job is the Job that made a pod.
func (o object) job() readOwner {
	for _, r := range o.Metadata.OwnerReferences {
		if r.Kind == "Job" && r.Controller {
			return r
		}
	}
	return readOwner{}
}

// maxText bounds what is kept of a text from the cluster, in bytes.
const maxText = 512

// plain is a text from the cluster, or from a sandbox through it, as one line of
// printable characters: its end, where what went wrong stands.
func plain(s string) string {
	if len(s) > 8*maxText {
		s = s[len(s)-8*maxText:]
	}
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)), " ")
	if len(s) <= maxText {
		return s
	}
	s = s[len(s)-maxText:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return "…" + s
}
