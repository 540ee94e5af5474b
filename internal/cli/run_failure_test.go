package cli

import "testing"

// The end of an agent and that of its turn come in either order, and are told once;
// the next message that fails is told again.
func TestFailureIsToldOnce(t *testing.T) {
	t.Parallel()
	const exit, turn = "run agent: it exited: exit status 1", "prompt agent: run agent: it exited: exit status 1"
	for name, first := range map[string]bool{"the agent first": true, "the turn first": false} {
		var f failures
		for range 2 { // messages
			f.begin()
			var told []bool
			if first {
				told = []bool{f.exit(exit), f.reply(turn)}
			} else {
				told = []bool{f.reply(turn), f.exit(exit)}
			}
			if !told[0] || told[1] {
				t.Errorf("%s: told %v", name, told)
			}
			if !f.told(turn) || f.told("another error") {
				t.Errorf("%s: what was told is not known", name)
			}
		}
	}
	var f failures
	for range 2 { // no agent was started for these
		if !f.reply("start agent: it was restarted 3 times") {
			t.Error("a failure is not told, of a message of its own")
		}
	}
}
