// Package sandbox makes sandboxes for workers of the tool channel.
//
// [Local] runs a worker on this machine in a sandbox of bubblewrap: namespaces
// of its own for processes, mounts, users and the network, which is empty; a
// workspace of a bounded size in memory; the gateway's Unix socket as the only
// way out. [Wrap] is how the worker in it runs each command in a second one,
// which hides the worker, its token and the socket from the command.
//
// What the machine offers is probed when the driver is made, and a driver that
// cannot keep a sandbox is an error: running without one takes an explicit
// option. Landlock, for machines without bubblewrap, is not built.
package sandbox
