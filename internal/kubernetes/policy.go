package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/logattr"
)

// policyTries bounds how often a policy is looked at that others change meanwhile.
const policyTries = 4

// ensurePolicy has the policy be there as it must be. It is asked before every
// sandbox: after somebody deleted or widened it the next ones would be open.
func (d *Driver) ensurePolicy(ctx context.Context, want networkPolicy) (err error) {
	spec, err := value(want.Spec)
	if err != nil {
		return err
	}
	for range policyTries {
		var have struct {
			Metadata readMeta       `json:"metadata"`
			Spec     jsontext.Value `json:"spec"`
		}
		_, err = d.c.do(ctx, request{op: "get network policy", method: http.MethodGet, resource: "networkpolicies", name: policyName}, &have)
		switch {
		case errors.Is(err, ErrNotFound):
			_, err = d.c.do(ctx, request{op: "create network policy", method: http.MethodPost, resource: "networkpolicies", query: strict(), body: want}, nil)
			if err == nil || !errors.Is(err, ErrExists) {
				return err
			}
			continue
		case err != nil:
			return err
		case have.Metadata.DeletionTimestamp != "":
			return errors.New("ensure network policy: it is being deleted; try again when it is gone")
		}
		found, parseErr := jsonx.Parse(have.Spec)
		if parseErr == nil && jsonx.Equal(found, spec) {
			return nil
		}
		d.o.Logger.WarnContext(ctx, "the network policy of sandboxes is another and is replaced", logattr.Reason(policyName))
		want.Metadata.ResourceVersion = have.Metadata.ResourceVersion
		_, err = d.c.once(ctx, request{op: "replace network policy", method: http.MethodPut, resource: "networkpolicies", name: policyName, query: strict(), body: want}, nil)
		if err == nil || !errors.Is(err, errConflict) {
			return err
		}
	}
	return fmt.Errorf("ensure network policy: %w", err)
}

func value(v any) (jsonx.Value, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return jsonx.Value{}, fmt.Errorf("write network policy: %w", err)
	}
	return jsonx.Parse(b)
}
