// Package jsonx reads JSON from outside without changing it: numbers keep
// their literal text, objects keep their member order, names match by case, a
// duplicate name is an error, and depth and size are bounded.
//
// It stands on jsontext, which validates; it adds an ordered tree ([Value]),
// equality and a canonical form that treat `1` and `1.0` as different numbers
// and objects as unordered, and scans ([ScanList], [ScanObject]) that return
// where the parts of a document lie instead of copying them.
package jsonx

import "errors"

// Bounds of a document. What exceeds one is not JSON to this package.
const (
	MaxDepth = 200      // nested arrays and objects
	MaxSize  = 16 << 20 // bytes
	// MaxValues bounds the values of a parsed tree, and the items or members of a
	// scanned document: `[1,1,…` of 16 MiB would take half a gigabyte as a tree.
	MaxValues = 1_000_000
)

// Errors that say which bound a document exceeds.
var (
	ErrDepth  = errors.New("jsonx: nested deeper than 200 levels")
	ErrSize   = errors.New("jsonx: document larger than 16 MiB")
	ErrValues = errors.New("jsonx: more than 1,000,000 values")
)
