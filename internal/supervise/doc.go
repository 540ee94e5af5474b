// Package supervise keeps connections to somebody else's server going: a loop
// that tries again, ever more slowly while it fails, and a sender of the newest
// of what it is given. Both run timers only while something is wrong.
package supervise
