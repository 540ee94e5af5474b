package testserver

import "testing"

// Redis starts a redis-server that keeps nothing. The settings are arguments of
// its command line, such as "--requirepass", "x".
func Redis(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	program := peer(tb, "redis-server", "/usr/bin/redis-server")
	addr, port := freeAddr(tb)
	return serve(tb, addr, tb.TempDir(), nil, append([]string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"}, settings...)...)
}

// RedisTLS starts a redis-server that speaks nothing but TLS.
func RedisTLS(tb testing.TB, cert *Certificate, settings ...string) *Server {
	tb.Helper()
	program := peer(tb, "redis-server", "/usr/bin/redis-server")
	addr, port := freeAddr(tb)
	return serve(tb, addr, tb.TempDir(), nil, append([]string{
		program, "--bind", "127.0.0.1", "--port", "0", "--tls-port", port, "--tls-cert-file", cert.CertFile, "--tls-key-file", cert.KeyFile,
		"--tls-ca-cert-file", cert.CertFile, "--tls-auth-clients", "no", "--save", "", "--appendonly", "no",
	}, settings...)...)
}
