// Package testserver runs real servers for tests: each in a temporary directory,
// on a free port of the loopback interface, and no longer than the test binary
// lives, even if that is killed.
//
// A server whose program is not installed skips the test, or fails it if
// OSSICLE_REQUIRE_PEERS is set.
package testserver
