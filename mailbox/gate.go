package mailbox

// Refusal names the gate that kept a signal in the first tier.
type Refusal string

// Gates, in the order in which they are asked (specification S-14).
const (
	Passed       Refusal = ""
	NoMeans      Refusal = "means" // the recipient's client cannot be asked for a turn
	NotDemanding Refusal = "type"  // neither urgent nor delegate
	TooDeep      Refusal = "depth" // it was sent out of an escalated turn
	TooMany      Refusal = "rate"  // the limit of the last minute is reached
)

// Refusals lists all gates.
func Refusals() []Refusal { return []Refusal{NoMeans, NotDemanding, TooDeep, TooMany} }

// Gate decides whether a signal may begin a turn of its recipient: all must hold.
// means says that the recipient's client can be asked for one; recent is the
// number of escalations in the window, limit how many there may be.
func Gate(s *Signal, means bool, recent, limit int) Refusal {
	switch {
	case !means:
		return NoMeans
	case !s.Demanding():
		return NotDemanding
	case s.Depth != 0:
		return TooDeep
	case recent >= limit:
		return TooMany
	}
	return Passed
}
