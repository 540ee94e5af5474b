package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// checkTime bounds Check.
const checkTime = 30 * time.Second

// rule is a right that the driver needs in its namespace.
type rule struct {
	group, resource string
	verbs           []string
	// optional rights make what goes wrong better known.
	optional bool
}

// rules are all of them. docs/channel.md has them as a Role.
var rules = []rule{
	{group: "networking.k8s.io", resource: "networkpolicies", verbs: []string{"get", "create", "update"}},
	{group: "", resource: "secrets", verbs: []string{"create", "patch", "delete", "deletecollection"}},
	{group: "batch", resource: "jobs", verbs: []string{"get", "list", "watch", "create", "deletecollection"}},
	{group: "", resource: "pods", verbs: []string{"list", "watch", "deletecollection"}},
	{group: "", resource: "events", verbs: []string{"list", "watch"}, optional: true},
}

type accessReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		ResourceAttributes struct {
			Namespace string `json:"namespace"`
			Group     string `json:"group"`
			Resource  string `json:"resource"`
			Verb      string `json:"verb"`
		} `json:"resourceAttributes"`
	} `json:"spec"`
}

// Check asks the cluster whether we may do what the driver does, and changes
// nothing: for the start of a program, or a doctor. An error that wraps
// ErrForbidden names the rights that are missing; other errors are those of Create.
func (d *Driver) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, ErrTimeout)
	defer cancel()
	conn, err := d.c.connect()
	if err != nil {
		return fmt.Errorf("check cluster: %w", err)
	}
	var missing []string
	for _, r := range rules {
		for _, verb := range r.verbs {
			allowed, err := d.allowed(ctx, conn.namespace, r, verb)
			if err != nil {
				return fmt.Errorf("check cluster: %w", err)
			}
			if !allowed && !r.optional {
				missing = append(missing, verb+" "+r.resource)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("check cluster: %w: in the namespace %s it lacks: %s", ErrForbidden, conn.namespace, strings.Join(missing, ", "))
	}
	return nil
}

func (d *Driver) allowed(ctx context.Context, namespace string, r rule, verb string) (bool, error) {
	review := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	a := &review.Spec.ResourceAttributes
	a.Namespace, a.Group, a.Resource, a.Verb = namespace, r.group, r.resource, verb
	var answer struct {
		Status *struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	_, err := d.c.do(ctx, request{op: "ask for rights", method: http.MethodPost, resource: "selfsubjectaccessreviews", body: review}, &answer)
	if err == nil && answer.Status == nil {
		err = errors.New("ask for rights: the answer has none")
	}
	return err == nil && answer.Status.Allowed, err
}
