package mailbox

// CheckDraft is what Send does first.
func CheckDraft(d *Draft) error { return d.check() }
