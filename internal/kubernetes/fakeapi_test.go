package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeAPI is an API server with the objects that the driver uses. It holds every
// request to Kubernetes' own description of the API, and misbehaves as it is told.
type fakeAPI struct {
	t   *testing.T
	api *openAPI

	mu        sync.Mutex
	version   int
	objects   map[string]map[string]map[string]any // by resource and name
	log       []logged
	compacted int // versions up to this one are forgotten
	changed   chan struct{}
	requests  []string // "POST jobs"
	rights    []string // "deletecollection jobs": the verb that it takes
	watching  map[chan func(http.ResponseWriter)]bool
	// hook may answer a request itself, before anything else is done.
	hook func(w http.ResponseWriter, r *http.Request, what string) bool
	// after may spoil an answer when the request has been done.
	after func(w http.ResponseWriter, what string) bool
	// keep is a finalizer: deleted objects stay.
	keep   bool
	orphan bool // the dependents of what is deleted stay
}

type logged struct {
	version        int
	resource, kind string
	object         map[string]any
}

func newFakeAPI(t *testing.T) *fakeAPI {
	api, err := loadAPI()
	if err != nil {
		t.Fatal(err)
	}
	return &fakeAPI{
		t: t, api: api, version: 100, objects: map[string]map[string]map[string]any{}, changed: make(chan struct{}),
		watching: map[chan func(http.ResponseWriter)]bool{},
	}
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, name := f.parse(r.URL.Path)
	what := r.Method + " " + resource
	if r.Method == http.MethodGet && name == "" {
		what = "LIST " + resource
		if r.URL.Query().Get("watch") != "" {
			what = "WATCH " + resource
		}
	}
	body, _ := io.ReadAll(r.Body)
	object := f.check(r, body)
	if grace, ok := object["gracePeriodSeconds"]; ok {
		r.Header.Set("X-Grace", fmt.Sprint(grace)) // for hooks
	}
	f.mu.Lock()
	f.requests = append(f.requests, what)
	f.rights = append(f.rights, verbOf(what, name)+" "+resource)
	hook := f.hook
	f.mu.Unlock()
	if hook != nil && hook(w, r, what) {
		return
	}
	switch {
	case strings.HasPrefix(what, "WATCH"):
		f.watch(w, r, resource)
	default:
		f.mu.Lock()
		code, answer := f.serve(r, resource, name, object)
		f.mu.Unlock()
		if f.after != nil && f.after(w, what) {
			return
		}
		reply(w, code, answer)
	}
}

// verbOf is what authorization calls a request.
func verbOf(what, name string) string {
	method, _, _ := strings.Cut(what, " ")
	if method == "DELETE" && name == "" {
		return "deletecollection"
	}
	return map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "LIST": "list", "WATCH": "watch", "DELETE": "delete"}[method]
}

// parse takes a path apart; one of another shape is told by check.
func (f *fakeAPI) parse(path string) (resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) > i+2 {
		if parts[i+1] != "sandboxes" {
			f.t.Errorf("namespace %s", parts[i+1])
		}
		parts = parts[i+2:]
	} else {
		parts = parts[len(parts)-1:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	return parts[0], name
}

// check holds a request to the API's description.
func (f *fakeAPI) check(r *http.Request, body []byte) map[string]any {
	op, ok := f.api.operation(r.Method, r.URL.Path)
	if !ok {
		f.t.Errorf("the API has no %s %s", r.Method, r.URL.Path)
		return nil
	}
	for key := range r.URL.Query() {
		if !slices.Contains(op.Query, key) {
			f.t.Errorf("%s %s has no parameter %s", r.Method, r.URL.Path, key)
		}
	}
	if writes := r.Method == http.MethodPost || r.Method == http.MethodPut; writes && !strings.Contains(r.URL.Path, "review") && r.URL.Query().Get("fieldValidation") != "Strict" {
		f.t.Errorf("%s %s would pass over a field that the cluster does not know", r.Method, r.URL.Path)
	}
	if len(body) == 0 {
		return nil
	}
	if kind := r.Header.Get("Content-Type"); !slices.Contains(op.Types, kind) && !slices.Contains(op.Types, "*/*") {
		f.t.Errorf("%s %s takes no %s", r.Method, r.URL.Path, kind)
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		f.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	if bad := f.api.validate(op.Body, object); len(bad) > 0 {
		f.t.Errorf("%s %s: the API refuses %q", r.Method, r.URL.Path, bad)
	}
	return object
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func statusOf(code int, reason, message string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "code": code, "reason": reason, "message": message}
}

func (f *fakeAPI) serve(r *http.Request, resource, name string, object map[string]any) (int, any) {
	all := f.objects[resource]
	switch r.Method {
	case http.MethodPost:
		if resource == "selfsubjectaccessreviews" {
			object["status"] = map[string]any{"allowed": true}
			return http.StatusCreated, object
		}
		name, _ = object["metadata"].(map[string]any)["name"].(string)
		if all[name] != nil {
			return http.StatusConflict, statusOf(http.StatusConflict, "AlreadyExists", resource+" "+name+" already exists")
		}
		f.put(resource, "ADDED", object)
		return http.StatusCreated, object
	case http.MethodGet:
		if name == "" {
			return http.StatusOK, f.list(r, resource)
		}
		if all[name] != nil {
			return http.StatusOK, all[name]
		}
	case http.MethodPut:
		if old := all[name]; old != nil {
			if metaOf(old)["resourceVersion"] != metaOf(object)["resourceVersion"] {
				return http.StatusConflict, statusOf(http.StatusConflict, "Conflict", "the object has been modified")
			}
			f.put(resource, "MODIFIED", object)
			return http.StatusOK, object
		}
	case http.MethodPatch:
		if old := all[name]; old != nil {
			changed := clone(old)
			maps.Copy(metaOf(changed), metaOf(object))
			f.put(resource, "MODIFIED", changed)
			return http.StatusOK, changed
		}
	case http.MethodDelete:
		if name != "" && all[name] == nil {
			break
		}
		var gone []any
		// Kubernetes leaves the pods of a Job behind, unless it is told otherwise.
		f.orphan = object["propagationPolicy"] != "Background" && object["propagationPolicy"] != "Foreground"
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if (name == "" || n == name) && selected(r, all[n]) {
				gone = append(gone, all[n])
				f.remove(resource, n)
			}
		}
		return http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1", "items": gone}
	}
	return http.StatusNotFound, statusOf(http.StatusNotFound, "NotFound", resource+" "+name+" not found")
}

func metaOf(object map[string]any) map[string]any {
	m, ok := object["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		object["metadata"] = m
	}
	return m
}

func clone(object map[string]any) map[string]any {
	b, _ := json.Marshal(object)
	var out map[string]any
	_ = json.Unmarshal(b, &out)
	return out
}

// selected applies a selector of labels, or of the kind of an event.
func selected(r *http.Request, object map[string]any) bool {
	labels, _ := metaOf(object)["labels"].(map[string]any)
	if s := r.URL.Query().Get("labelSelector"); s != "" {
		for term := range strings.SplitSeq(s, ",") {
			k, v, _ := strings.Cut(term, "=")
			if have, ok := labels[k]; !ok || have != v {
				return false
			}
		}
	}
	if r.URL.Query().Get("fieldSelector") == "involvedObject.kind=Job,reason=FailedCreate" {
		return object["reason"] == "FailedCreate"
	}
	return true
}

// put keeps an object, with the lock held.
func (f *fakeAPI) put(resource, kind string, object map[string]any) {
	f.version++
	m := metaOf(object)
	name, _ := m["name"].(string)
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]map[string]any{}
	}
	if old := f.objects[resource][name]; old != nil {
		m["uid"] = metaOf(old)["uid"]
	} else {
		m["uid"] = fmt.Sprintf("uid-%d", f.version)
	}
	m["resourceVersion"] = strconv.Itoa(f.version)
	f.objects[resource][name] = object
	f.note(resource, kind, object)
}

func (f *fakeAPI) note(resource, kind string, object map[string]any) {
	f.log = append(f.log, logged{f.version, resource, kind, clone(object)})
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAPI) remove(resource, name string) {
	object := f.objects[resource][name]
	if object == nil {
		return
	}
	if f.keep {
		changed := clone(object)
		metaOf(changed)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		f.put(resource, "MODIFIED", changed)
		return
	}
	f.version++
	metaOf(object)["resourceVersion"] = strconv.Itoa(f.version)
	delete(f.objects[resource], name)
	f.note(resource, "DELETED", object)
	if resource == "jobs" && !f.orphan { // the garbage collector
		for _, owned := range []string{"secrets", "pods"} {
			for n, o := range f.objects[owned] {
				owners, _ := metaOf(o)["ownerReferences"].([]any)
				if len(owners) > 0 && owners[0].(map[string]any)["uid"] == metaOf(object)["uid"] {
					f.remove(owned, n)
				}
			}
		}
	}
}

// list is in pages of two, whatever is asked for up to that.
func (f *fakeAPI) list(r *http.Request, resource string) any {
	items, next := []any{}, ""
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	for _, n := range slices.Sorted(maps.Keys(f.objects[resource])) {
		if n <= r.URL.Query().Get("continue") || !selected(r, f.objects[resource][n]) {
			continue
		}
		if len(items) == min(limit, 2) && limit > 0 {
			next = metaOf(items[len(items)-1].(map[string]any))["name"].(string)
			break
		}
		items = append(items, f.objects[resource][n])
	}
	return map[string]any{
		"kind": "List", "apiVersion": "v1", "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(f.version), "continue": next},
	}
}

// watch replays what happened since a version, and goes on.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		f.t.Errorf("watch of %s without a version", resource)
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	bookmark := time.NewTicker(time.Minute)
	defer bookmark.Stop()
	poke := make(chan func(http.ResponseWriter))
	f.mu.Lock()
	f.watching[poke] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watching, poke)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
	for {
		f.mu.Lock()
		if from < f.compacted {
			f.mu.Unlock()
			send("ERROR", statusOf(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", from, f.compacted)))
			return
		}
		var news []logged
		for _, l := range f.log {
			if l.version > from && l.resource == resource && selected(r, l.object) {
				news = append(news, l)
			}
		}
		changed, now := f.changed, f.version
		f.mu.Unlock()
		for _, l := range news {
			send(l.kind, l.object)
			from = l.version
		}
		select {
		case <-changed:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		case <-bookmark.C:
			from = now
			send("BOOKMARK", map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": strconv.Itoa(now)}})
		case misbehave := <-poke:
			misbehave(w)
			return
		}
	}
}

// breakWatches has every open watch do something and end.
func (f *fakeAPI) breakWatches(how func(http.ResponseWriter)) {
	f.mu.Lock()
	pokes := slices.Collect(maps.Keys(f.watching))
	f.mu.Unlock()
	for _, p := range pokes {
		p <- how
	}
}

// setHook sets or clears the hook.
func (f *fakeAPI) setHook(hook func(w http.ResponseWriter, r *http.Request, what string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// refuse has requests of a kind answered with a status.
func (f *fakeAPI) refuse(what string, code int, reason, message string) {
	f.setHook(func(w http.ResponseWriter, _ *http.Request, got string) bool {
		if got != what {
			return false
		}
		reply(w, code, statusOf(code, reason, message))
		return true
	})
}

// asked are the requests so far of which the name begins so.
func (f *fakeAPI) asked(prefix string) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

// there are the names of the objects of a kind.
func (f *fakeAPI) there(resource string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects[resource]))
}

func (f *fakeAPI) get(resource, name string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[resource][name] == nil {
		return nil
	}
	return clone(f.objects[resource][name])
}

// add makes or changes an object as the cluster does.
func (f *fakeAPI) add(resource string, object map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "ADDED"
	if f.objects[resource][metaOf(object)["name"].(string)] != nil {
		kind = "MODIFIED"
	}
	f.put(resource, kind, object)
}

func (f *fakeAPI) drop(resource, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(resource, name)
}

// pod makes or changes a pod of a session's Job, whose status is JSON.
func (f *fakeAPI) pod(session, name, status string) {
	job := f.get("jobs", objectName(session))
	if job == nil {
		f.t.Fatalf("%s has no job", session)
	}
	object := map[string]any{"metadata": map[string]any{
		"name": name, "labels": metaOf(job)["labels"], "annotations": map[string]any{annotationSession: session},
		"ownerReferences": []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": objectName(session), "uid": metaOf(job)["uid"], "controller": true}},
	}}
	var s any
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		f.t.Fatalf("%s: %v", status, err)
	}
	object["status"] = s
	if bad := f.api.validate("io.k8s.api.core.v1.Pod", clone(object)); len(bad) > 0 {
		f.t.Fatalf("the API has no such pod: %q", bad)
	}
	f.add("pods", object)
}

// ended changes the status of a pod, which is JSON, unless the pod was deleted
// meanwhile, perhaps with its Job.
func (f *fakeAPI) ended(name, status string) {
	var s any
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		f.t.Errorf("%s: %v", status, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects["pods"][name] == nil {
		return
	}
	object := clone(f.objects["pods"][name])
	object["status"] = s
	f.put("pods", "MODIFIED", object)
}

// jobStatus changes a Job as its controller does.
func (f *fakeAPI) jobStatus(session, status string) {
	job := f.get("jobs", objectName(session))
	var s any
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		f.t.Fatalf("%s: %v", status, err)
	}
	job["status"] = s
	if bad := f.api.validate("io.k8s.api.batch.v1.Job", clone(job)); len(bad) > 0 {
		f.t.Fatalf("the API has no such job: %q", bad)
	}
	f.add("jobs", job)
}

// failedCreate is the event of a Job that can have no pod.
func (f *fakeAPI) failedCreate(session, message string) {
	f.add("events", map[string]any{
		"metadata": map[string]any{"name": fmt.Sprintf("e-%d", time.Now().UnixNano())}, "reason": "FailedCreate", "message": message, "type": "Warning",
		"involvedObject": map[string]any{"kind": "Job", "name": objectName(session)},
	})
}
