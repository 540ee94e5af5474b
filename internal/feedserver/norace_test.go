//go:build !race

package feedserver_test

const raceEnabled = false
