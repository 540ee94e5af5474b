package monty

import "github.com/ossicle/ossicle/internal/python"

// StateSize is the number of bytes that a scope holds.
func StateSize(s python.Scope) int {
	sc := s.(*scope)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.mem.state == nil {
		return 0
	}
	return len(sc.mem.state.dump)
}

// IdlePIDs are the processes of the children that wait.
func IdlePIDs(e *Engine) []int {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	var pids []int
	for _, w := range e.pool.idle {
		pids = append(pids, w.proc.Pid())
	}
	return pids
}
