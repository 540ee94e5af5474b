//go:build !unix

package filelock

import (
	"errors"
	"os"
)

// Hold holds nothing where there is no such lock: of two processes that take
// one id, the store then knows no difference.
func Hold(string) (release func(), err error) { return func() {}, nil }

// Share holds nothing; see Hold.
func Share(string) (release func(), err error) { return func() {}, nil }

// Held knows of nobody; see Hold.
func Held(string) bool { return false }

// HoldDir holds nothing; see Hold.
func HoldDir(string) (release func(), err error) { return func() {}, nil }

// Remove removes a file; see Hold.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
