//go:build linux

package sandbox

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that gives rights up is never the main one, as which /proc shows the
// whole process.
func TestAloneIsNeverTheMainThread(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 300 {
		wg.Add(1)
		alone(func() {
			defer wg.Done()
			if unix.Gettid() == os.Getpid() {
				t.Error("on the main thread")
			}
		})
		runtime.Gosched()
	}
	wg.Wait()
}

// Nobody else is ended where there is no domain: as root that would be everybody.
func TestNoDomainKillsNobody(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || os.Getpid() == 1 {
		t.Skip("only root can signal everybody")
	}
	killDomain() // we live to tell
}
