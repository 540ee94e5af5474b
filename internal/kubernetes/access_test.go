package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// front is an API server over TLS in front of a fake one, which knows some tokens.
type front struct {
	*httptest.Server
	mu     sync.Mutex
	tokens map[string]bool
	seen   []string // tokens, in order
	certs  int      // requests with a client certificate
}

func newFront(t *testing.T, tokens ...string) *front {
	t.Helper()
	api := newFakeAPI(t)
	f := &front{tokens: map[string]bool{}}
	for _, token := range tokens {
		f.tokens[token] = true
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		f.mu.Lock()
		f.seen = append(f.seen, token)
		known := f.tokens[token]
		if len(r.TLS.PeerCertificates) > 0 {
			f.certs, known = f.certs+1, true
		}
		f.mu.Unlock()
		if !known {
			reply(w, 401, statusOf(401, "Unauthorized", "Unauthorized"))
			return
		}
		api.ServeHTTP(w, r)
	}))
	f.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

func (f *front) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
}

func (f *front) host(t *testing.T) (host, port string) {
	t.Helper()
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), u.Port()
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check makes a request.
func checked(t *testing.T, o *Options) (*Driver, error) {
	t.Helper()
	d, err := New(inCluster(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.c.close() })
	return d, d.Check(t.Context())
}

// In a pod the service account is found, and its token read again for each request:
// the kubelet replaces it.
func TestPodAccess(t *testing.T) {
	t.Parallel()
	f := newFront(t, "one", "two")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), string(f.ca()))
	write(t, filepath.Join(dir, "namespace"), "sandboxes\n")
	token := write(t, filepath.Join(dir, "token"), "one\n")
	host, port := f.host(t)
	env := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	getenv := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	d, err := New(inCluster(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.c.close()
	d.c.load = func() (*access, error) { return podAccess(dir, getenv) }
	if err := d.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := len(f.seen)
	write(t, token, "two\n")
	if err := d.Check(t.Context()); err != nil || f.seen[n] != "two" || f.seen[n-1] != "one" {
		t.Errorf("%v, %v", err, f.seen)
	}
	write(t, token, "a b")
	if err := d.Check(t.Context()); err == nil || strings.Contains(err.Error(), "a b") {
		t.Errorf("a token that is none: %v", err)
	}
	write(t, token, "two\n")
	d.c.close() // a new connection, after the cluster's authority became another
	write(t, filepath.Join(dir, "ca.crt"), string(somePEM(t)))
	old, err := podAccess(dir, getenv)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), string(f.ca()))
	first := true
	d.c.load = func() (*access, error) {
		if first {
			first = false
			return old, nil
		}
		return podAccess(dir, getenv)
	}
	if err := d.Check(t.Context()); err != nil || first {
		t.Errorf("after another authority: %v", err)
	}
	if _, err := podAccess(dir, func(string) (string, bool) { return "", false }); !errors.Is(err, ErrNoCluster) {
		t.Errorf("%v", err)
	}
	if _, err := podAccess(t.TempDir(), getenv); err == nil {
		t.Error("a service account without files is one")
	}
}

// A certificate of another authority is refused, whatever else fits.
func TestAnotherServerIsNotTrusted(t *testing.T) {
	t.Parallel()
	f := newFront(t, "s3cret")
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfigText(f.URL, "token: s3cret"))
	d, err := New(inCluster(), &Options{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	defer d.c.close()
	_, err = d.c.once(t.Context(), request{op: "ask", method: "GET", resource: "pods"}, nil)
	if !errors.Is(err, ErrUnreachable) || len(f.seen) > 0 {
		t.Errorf("%v, %v", err, f.seen)
	}
}

func TestKubeconfigUsers(t *testing.T) {
	t.Parallel()
	f := newFront(t, "good")
	dir := t.TempDir()
	cert, key := pair(t)
	write(t, filepath.Join(dir, "token"), "good\n")
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), key)
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, user := range map[string]string{
		"token": "token: good", "tokenFile": "tokenFile: token", "certificate": "client-certificate: cert.pem, client-key: key.pem",
		"certificate inside": `client-certificate-data: "` + b64(cert) + `", client-key-data: "` + b64(key) + `"`,
		"plugin":             `exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: ["-c", 'test -n "$KUBERNETES_EXEC_INFO" && echo "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$WHICH\"}}"'], env: [{name: WHICH, value: good}]}`,
	} {
		text := strings.Replace(kubeconfigText(f.URL, user), `"}}]`, `", certificate-authority-data: "`+b64(string(f.ca()))+`"}}]`, 1)
		file := write(t, filepath.Join(dir, "config-"+strings.ReplaceAll(name, " ", "-")), text)
		if _, err := checked(t, &Options{Kubeconfig: file}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := checked(t, &Options{Kubeconfig: file, Context: "other"}); err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.certs == 0 {
		t.Error("no certificate was shown")
	}
}

// What would make us somebody else, or show credentials to whoever listens, is
// refused and not passed over; and no error repeats a secret.
func TestKubeconfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"as":                 kubeconfigText("https://c", "token: s3cret, as: admin"),
		"as-groups":          kubeconfigText("https://c", "token: s3cret, as-groups: [system:masters]"),
		"password":           kubeconfigText("https://c", "username: u, password: s3cret"),
		"auth-provider":      kubeconfigText("https://c", "auth-provider: {name: gcp}"),
		"not encrypted":      kubeconfigText("http://c.example", "token: s3cret"),
		"another scheme":     kubeconfigText("ftp://c.example", "token: s3cret"),
		"user in URL":        kubeconfigText("https://u:s3cret@c.example", ""),
		"no address":         kubeconfigText("", "token: s3cret"),
		"token of lines":     kubeconfigText("https://c", `token: "s3cret\n"`),
		"half a pair":        kubeconfigText("https://c", "client-key-data: czNjcmV0"),
		"key that is none":   kubeconfigText("https://c", "client-certificate-data: czNjcmV0, client-key-data: czNjcmV0"),
		"no base64":          kubeconfigText("https://c", `client-key-data: "s3cret!"`),
		"old plugin":         kubeconfigText("https://c", "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}"),
		"plugin of nothing":  kubeconfigText("https://c", "exec: {apiVersion: client.authentication.k8s.io/v1}"),
		"no such user":       strings.Replace(kubeconfigText("https://c", "token: s3cret"), "user: us,", "user: other,", 1),
		"no such cluster":    strings.Replace(kubeconfigText("https://c", "token: s3cret"), "cluster: cl,", "cluster: other,", 1),
		"two trusts":         strings.Replace(kubeconfigText("https://c", ""), `"}}]`, `", insecure-skip-tls-verify: true, certificate-authority-data: "`+base64.StdEncoding.EncodeToString(somePEM(t))+`"}}]`, 1),
		"authority of noise": strings.Replace(kubeconfigText("https://c", "token: s3cret"), `"}}]`, `", certificate-authority-data: "czNjcmV0"}}]`, 1),
		"no YAML":            "s3cret: [",
	} {
		if _, err := parseKubeconfig([]byte(text), t.TempDir(), ""); err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "czNjcmV0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that has forgotten who we are makes us read the file again, once; a
// plugin is asked again.
func TestCredentialsThatAreRefusedAreRenewed(t *testing.T) {
	t.Parallel()
	f := newFront(t, "new")
	ca := `", certificate-authority-data: "` + base64.StdEncoding.EncodeToString(f.ca()) + `"}}]`
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "config"), strings.Replace(kubeconfigText(f.URL, "token: old"), `"}}]`, ca, 1))
	d, err := checked(t, &Options{Kubeconfig: file})
	if !errors.Is(err, ErrUnauthorized) || len(f.seen) != 2 {
		t.Fatalf("%v, %v", err, f.seen)
	}
	write(t, file, strings.Replace(kubeconfigText(f.URL, "token: new"), `"}}]`, ca, 1))
	if err := d.Check(t.Context()); err != nil {
		t.Errorf("%v", err)
	}
	write(t, filepath.Join(dir, "which"), "old")
	plugin := `exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: ["-c", 'echo "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$(cat ` + dir + `/which)\"}}"; echo -n new >` + dir + `/which; echo x >>` + dir + `/runs']}`
	file = write(t, filepath.Join(dir, "plugged"), strings.Replace(kubeconfigText(f.URL, plugin), `"}}]`, ca, 1))
	if _, err := checked(t, &Options{Kubeconfig: file}); err != nil {
		t.Error(err)
	}
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || string(runs) != "x\nx\n" {
		t.Errorf("the plugin ran %q, %v", runs, err)
	}
}

// A plugin that fails, prints too much or nothing useful is an error without its
// output.
func TestPluginsThatMisbehave(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"fails": "echo s3cret; exit 3", "noise": "echo s3cret", "floods": "while :; do echo s3cret; done", "nothing": ":"} {
		p, err := newPlugin(execPlugin{APIVersion: pluginVersion, Command: "sh", Args: []string{"-c", script}}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if token, err := p.bearer(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") || time.Since(start) > pluginTime/2 {
			t.Errorf("%s: %q, %v after %s", name, token, err, time.Since(start))
		}
	}
}

// A redirect is an answer that says no: the token does not go with it.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfigText(first.URL, "token: s3cret"))
	var refused *APIError
	if _, err := checked(t, &Options{Kubeconfig: file}); !errors.As(err, &refused) || refused.Code != http.StatusTemporaryRedirect || asked > 0 {
		t.Errorf("%v; %d", err, asked)
	}
}

// pair is a client's certificate and key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
}

func somePEM(t *testing.T) []byte {
	t.Helper()
	cert, _ := pair(t)
	return []byte(cert)
}
