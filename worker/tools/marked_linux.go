package tools

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// markRounds bounds how often the processes are looked through: one that forks
// while we look may be missed once.
const markRounds = 5

// killMarked kills every process that has a mark in its environment: what left
// its process group, also by setsid, and did not wash its environment. What did
// is the sandbox's to end.
func killMarked(mark string) {
	want := []byte(markName + "=" + mark)
	for range markRounds {
		if !killOnce(want) {
			return
		}
	}
}

func killOnce(want []byte) (found bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, want) {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
				break
			}
		}
	}
	return found
}
