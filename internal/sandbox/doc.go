// Package sandbox makes sandboxes for workers of the tool channel.
//
// [Local] runs a worker on this machine in the best tier that the machine can
// keep. With bubblewrap the worker is in namespaces of its own, with an empty
// network, a workspace of a bounded size in memory, and the gateway's Unix socket
// as the only way out; each of its commands is in a second such sandbox. With
// Landlock the worker is not confined, and each command is in a domain of its
// own. [RunWorker] is the worker of either, and [ShellOptions] how it runs its
// commands.
//
// What the machine offers is tried when the driver is made, and a driver that
// cannot keep a sandbox is an error: running without one takes an explicit
// option. [Probe] says what was found, and what the tier does not keep.
package sandbox
