// Package irc is a small IRC client that gives an agent a place in a chat.
//
// A [Client] keeps one connection to one server: it registers (with a password,
// or by SASL PLAIN), joins its channels, answers and sends PINGs, and comes back
// with growing pauses when the connection is lost. What people say to its nick
// ("nick: text", "nick, text", "@nick text"), in a channel or in private, is
// handed over as a [Message] whose Channel takes the reply; what they say to each
// other can be handed over as chatter (specification N-14).
//
// Everything that comes from the server is untrusted. Lines are bounded and
// parsed strictly, and texts lose formatting codes, control characters and what
// cannot be seen. Texts that go out can hold no line end, so that a reply is
// never a command, and are sent no faster than servers bear.
//
// What is bounded, and what happens then: a line from the server (dropped, and
// logged), a reply (cut, with a note of how many lines are left out), the queue
// of lines to send (Publish waits for room within its time, then fails with
// ErrQueueFull), the age of a queued line (dropped, and logged), private
// conversations that are followed through changes of nick (the one that was
// silent for longest is no longer followed).
package irc
