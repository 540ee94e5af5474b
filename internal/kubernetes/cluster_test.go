package kubernetes

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// envCluster names a kubeconfig with all rights on an API server of Kubernetes that
// runs no controllers: there is none in Debian, so this test is for whoever has one.
const envCluster = "OSSICLE_TEST_KUBECONFIG"

// cluster is a real API server and an administrator of it.
type cluster struct {
	t         *testing.T
	conn      *connection
	over      http.RoundTripper
	namespace string
}

// as acts as somebody else, as an administrator may.
type as struct {
	over http.RoundTripper
	user string
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Impersonate-User", a.user)
	return a.over.RoundTrip(r)
}

func openCluster(t *testing.T) *cluster {
	t.Helper()
	path := os.Getenv(envCluster)
	if path == "" {
		t.Skip("set " + envCluster + " to a kubeconfig of an API server without controllers")
	}
	a, err := fileAccess(path, "")
	if err != nil {
		t.Fatal(err)
	}
	over := a.transport()
	t.Cleanup(over.CloseIdleConnections)
	c := &cluster{t: t, over: over, namespace: "ossicle-" + strings.ToLower(rand.Text()[:8])}
	c.conn = &connection{access: a, namespace: c.namespace, http: &http.Client{Transport: over}}
	c.must("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, c.namespace))
	t.Cleanup(func() {
		c.do(context.WithoutCancel(t.Context()), "DELETE", "/api/v1/namespaces/"+c.namespace, "")
	})
	return c
}

func (c *cluster) do(ctx context.Context, method, path, body string) (int, []byte) {
	c.t.Helper()
	u := *c.conn.base
	u.Path = path
	q, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if c.conn.bearer != nil {
		token, err := c.conn.bearer(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.conn.http.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, b
}

func (c *cluster) must(method, path, body string) map[string]any {
	c.t.Helper()
	code, b := c.do(c.t.Context(), method, path, body)
	if code >= 300 {
		c.t.Fatalf("%s %s: %d %s", method, path, code, b)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		c.t.Fatal(err)
	}
	return v
}

// names are those of the objects of a kind in the namespace.
func (c *cluster) names(resource string) (out []string) {
	c.t.Helper()
	list := c.must("GET", apis[resource]+"/namespaces/"+c.namespace+"/"+resource, "")
	for _, item := range list["items"].([]any) {
		out = append(out, metaOf(item.(map[string]any))["name"].(string))
	}
	return out
}

// grant gives a user exactly the rights that the driver says it needs.
func (c *cluster) grant(user string) {
	c.t.Helper()
	var rights []map[string]any
	for _, r := range rules {
		rights = append(rights, map[string]any{"apiGroups": []string{r.group}, "resources": []string{r.resource}, "verbs": r.verbs})
	}
	role, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "driver"}, "rules": rights})
	if err != nil {
		c.t.Fatal(err)
	}
	at := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + c.namespace
	c.must("POST", at+"/roles", string(role))
	c.must("POST", at+"/rolebindings", fmt.Sprintf(`{"metadata":{"name":"driver"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"driver"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%q}]}`, user))
}

// pod makes the pod of a Job, as its controller would: from the Job's template.
func (c *cluster) pod(session string) string {
	c.t.Helper()
	name := objectName(session)
	job := c.must("GET", "/apis/batch/v1/namespaces/"+c.namespace+"/jobs/"+name, "")
	pod := job["spec"].(map[string]any)["template"].(map[string]any)
	m := metaOf(pod)
	m["name"] = name + "-" + strings.ToLower(rand.Text()[:5])
	m["ownerReferences"] = []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metaOf(job)["uid"], "controller": true}}
	body, err := json.Marshal(map[string]any{"metadata": m, "spec": pod["spec"]})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must("POST", "/api/v1/namespaces/"+c.namespace+"/pods", string(body))
	return m["name"].(string)
}

func (c *cluster) status(pod, status string) {
	c.t.Helper()
	c.must("PATCH", "/api/v1/namespaces/"+c.namespace+"/pods/"+pod+"/status", `{"status":`+status+`}`)
}

// told is what a driver said of a session.
type told struct {
	session string
	exit    Exit
	note    Note
}

func await(t *testing.T, from <-chan told) told {
	t.Helper()
	select {
	case x := <-from:
		return x
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was told")
		return told{}
	}
}

// The real API server takes what we ask for, with no more rights than we say, under
// the strictest standard for pods; and the driver understands what it says.
func TestAgainstARealAPIServer(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	events := make(chan told, 16)
	var log bytes.Buffer
	d, err := New(outside(), &Options{
		Kubeconfig: os.Getenv(envCluster), Namespace: c.namespace, Transport: as{c.over, "driver-" + c.namespace},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Exited: func(session string, e Exit) { events <- told{session: session, exit: e} },
		Noted:  func(session string, n Note) { events <- told{session: session, note: n} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if err := d.Create(t.Context(), spec("a")); !errors.Is(err, ErrForbidden) {
		t.Fatalf("without rights: %v", err)
	}
	if err := d.Check(t.Context()); !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "deletecollection secrets") {
		t.Errorf("without rights: %v", err)
	}
	c.grant("driver-" + c.namespace)
	for end := time.Now().Add(20 * time.Second); d.Check(t.Context()) != nil; time.Sleep(50 * time.Millisecond) { // the server learns of rights by and by
		if time.Now().After(end) {
			t.Fatal(d.Check(t.Context()))
		}
	}
	if err := d.Create(t.Context(), spec("a")); err != nil {
		t.Fatal(err)
	}
	policy := c.must("GET", "/apis/networking.k8s.io/v1/namespaces/"+c.namespace+"/networkpolicies/"+policyName, "")
	everything := full()
	everything.Pod.PriorityClass = "" // the cluster has none of that name
	everything.Pod.RuntimeClass = ""
	if err := d.Create(t.Context(), everything); err != nil {
		t.Fatal(err)
	}
	again := c.must("GET", "/apis/networking.k8s.io/v1/namespaces/"+c.namespace+"/networkpolicies/"+policyName, "")
	if metaOf(again)["resourceVersion"] != metaOf(policy)["resourceVersion"] {
		t.Error("the policy was replaced by its like")
	}
	if err := d.Create(t.Context(), spec("a")); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if jobs, secrets := c.names("jobs"), c.names("secrets"); len(jobs) != 2 || len(secrets) != 2 {
		t.Errorf("%v %v", jobs, secrets)
	}

	// A pod of the template is restricted enough, and its end arrives.
	pod := c.pod("a")
	c.status(pod, waitingFor("ErrImagePull", "manifest unknown"))
	if x := await(t, events); x.session != "a" || x.note.Reason != ReasonImage {
		t.Errorf("%+v", x)
	}
	c.status(pod, strings.ReplaceAll(statusRunning, `"running":{}`, `"waiting":null,"running":{}`))
	second := c.pod("a")
	if x := await(t, events); x.note.Reason != ReasonSecondPod {
		t.Errorf("%+v", x)
	}
	c.must("DELETE", "/api/v1/namespaces/"+c.namespace+"/pods/"+second, `{"gracePeriodSeconds":0}`)
	c.status(pod, strings.Replace(terminated(77, "Error", "refused"), `{"terminated"`, `{"running":null,"terminated"`, 1))
	if x := await(t, events); x.session != "a" || x.exit.Reason != ReasonExited || x.exit.Code != 77 || x.exit.Detail != "refused" {
		t.Errorf("%+v", x)
	}
	other := c.pod(everything.Session)
	c.must("DELETE", "/api/v1/namespaces/"+c.namespace+"/pods/"+other, `{"gracePeriodSeconds":0}`)
	if x := await(t, events); x.session != everything.Session || x.exit.Reason != ReasonDeleted {
		t.Errorf("%+v", x)
	}

	for range 2 {
		if err := d.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if jobs, secrets := c.names("jobs"), c.names("secrets"); len(jobs) != 1 || len(secrets) != 1 {
		t.Errorf("%v %v", jobs, secrets)
	}
	quota := "/api/v1/namespaces/" + c.namespace + "/resourcequotas"
	c.must("POST", quota, `{"metadata":{"name":"few"},"spec":{"hard":{"count/jobs.batch":"1"}}}`)
	c.must("PATCH", quota+"/few/status", `{"status":{"hard":{"count/jobs.batch":"1"},"used":{"count/jobs.batch":"1"}}}`)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // nor of quotas at once
		err = d.Create(t.Context(), spec("q"))
		if errors.Is(err, ErrQuota) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("beyond the quota: %v", err)
		}
		if err == nil {
			if err := d.Delete(t.Context(), "q"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Delete(t.Context(), everything.Session); err != nil {
		t.Fatal(err)
	}
	if jobs, secrets := c.names("jobs"), c.names("secrets"); len(jobs)+len(secrets) != 0 {
		t.Errorf("left: %v %v", jobs, secrets)
	}
	if _, err := d.Health(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), spec("a").Token) {
		t.Error("the token is in the log")
	}
}

// The real server's way of having forgotten a version is the one that we know.
func TestARealServerForgets(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	w := &watcher{
		c:        &client{load: func() (*access, error) { return c.conn.access, nil }, namespace: c.namespace, over: c.over, timeout: DefaultRequestTime, log: slog.New(slog.DiscardHandler)},
		resource: "pods", selector: watched()["pods"], version: "1",
		sink: func(context.Context, change) error { return nil },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := w.stream(ctx, func() {})
	if ctx.Err() != nil {
		t.Skip("the server remembers everything; one that was restarted does not")
	}
	if !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
}
