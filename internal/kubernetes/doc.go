// Package kubernetes makes sandboxes for workers of the tool channel in a
// Kubernetes cluster: a Job of one pod for each session, with a Secret for its
// token, behind a NetworkPolicy that lets it reach the gateway and nothing else.
//
// [Driver] creates and deletes them, and watches the namespace for how they end:
// by themselves, by the cluster's hand, or never begun because an image cannot be
// pulled or no node has room. It speaks to the API with net/http and types of its
// own, of which docs/adr/0012 says why; nothing happens before the first request,
// so a program that makes no sandbox pays nothing for it.
//
// What an API server says is read strictly and within bounds, every request has a
// deadline, and nothing is polled.
package kubernetes
