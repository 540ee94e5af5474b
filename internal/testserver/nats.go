package testserver

import "testing"

// NATS starts a nats-server without JetStream. The settings are arguments of its
// command line, such as "--user", "x".
func NATS(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	program := peer(tb, "nats-server", "/usr/sbin/nats-server")
	addr, port := freeAddr(tb)
	return serve(tb, addr, tb.TempDir(), nil, append([]string{program, "-a", "127.0.0.1", "-p", port}, settings...)...)
}

// NATSTLS starts a nats-server that speaks nothing but TLS.
func NATSTLS(tb testing.TB, cert *Certificate, settings ...string) *Server {
	tb.Helper()
	return NATS(tb, append([]string{"--tls", "--tlscert", cert.CertFile, "--tlskey", cert.KeyFile}, settings...)...)
}
