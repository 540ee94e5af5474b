//go:build race

package feedserver_test

const raceEnabled = true
