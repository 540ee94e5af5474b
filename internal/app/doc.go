// Package app joins the rooms: it builds what a command needs, in order, and
// takes it down in the opposite order.
package app
