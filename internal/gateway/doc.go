// Package gateway mounts the host side of the tool channel in an HTTP server:
// the tokens that let workers in, the upgrade, and the upload of artifacts,
// which is a sandbox's only way to leave something behind. It also turns a
// running sandbox into an MCP server for an agent.
package gateway
