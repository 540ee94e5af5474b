// Package ui serves the page of ossicle: the files that web/ is built into,
// embedded, so that neither go run nor go install needs Node.
package ui
