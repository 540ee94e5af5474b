// Package fleet is the sandboxes of a process, all together: it joins the host of the
// tool channel (package worker), the gateway where workers come in (package gateway)
// and the drivers that make sandboxes (packages sandbox and kubernetes), keeps what is
// known of them, and takes all of it down in order. Its [API] is what the daemon
// serves of them; [Run], [Doctor] and [DialDoctor] are for one command.
package fleet
