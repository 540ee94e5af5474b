package testserver

import (
	"os"
	"path/filepath"
	"testing"
)

// Addr returns an address on which nobody listens, and which stays free while a
// server that listens there is restarted.
func Addr(tb testing.TB) string {
	tb.Helper()
	addr, _ := freeAddr(tb)
	return addr
}

// nginxHead keeps nginx in the directory that it is given, in the foreground.
const nginxHead = `daemon off;
pid nginx.pid;
error_log stderr error;
worker_processes 1;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
`

// Nginx starts an nginx that listens on addr, with what a configuration has in
// its http block.
func Nginx(tb testing.TB, addr, config string) *Server {
	tb.Helper()
	program := peer(tb, "nginx", "/usr/sbin/nginx")
	dir := tb.TempDir()
	path := filepath.Join(dir, "nginx.conf")
	must(tb, os.WriteFile(path, []byte(nginxHead+config+"\n}\n"), 0o600))
	user := []string{}
	if os.Geteuid() == 0 { // the workers must be able to enter the directory
		user = []string{"-g", "user root;"}
	}
	return serve(tb, addr, dir, nil, append([]string{program, "-p", dir, "-e", "stderr", "-c", path}, user...)...)
}

// caddyHead has Caddy keep to itself.
const caddyHead = `{
	admin off
	auto_https disable_redirects
	skip_install_trust
}
`

// Caddy starts a Caddy that listens on addr, with the sites of a Caddyfile.
func Caddy(tb testing.TB, addr, sites string) *Server {
	tb.Helper()
	program := peer(tb, "caddy", "/usr/bin/caddy")
	dir := tb.TempDir()
	path := filepath.Join(dir, "Caddyfile")
	must(tb, os.WriteFile(path, []byte(caddyHead+sites), 0o600))
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	return serve(tb, addr, dir, env, program, "run", "--config", path, "--adapter", "caddyfile")
}
