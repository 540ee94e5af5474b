// Package access says who somebody is and what they may do: principals with
// rights, the records of the tokens that were given out, and tickets, which are
// short-lived stand-ins for a token where only a URL can be given.
//
// Secrets appear here only as they are made. What is kept of a token is its
// hash; a ticket is kept nowhere, its signature is its proof.
package access
