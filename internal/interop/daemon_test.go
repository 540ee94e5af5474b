package interop

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/testserver"
)

// daemon is "ossicle serve", which is killed and started again.
type daemon struct {
	t    *testing.T
	addr string
	data string
	args []string
	env  []string // beside ours
	p    *process.Process
}

func newDaemon(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, addr: testserver.Addr(t), data: t.TempDir(), env: env}
	d.args = append([]string{program, "serve", "--listen", d.addr, "--data", d.data, "--json"}, args...)
	d.start()
	t.Cleanup(func() { d.p.Kill() })
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	p, err := process.Start(process.Options{Args: d.args, Env: append(os.Environ(), d.env...)})
	if err != nil {
		d.t.Fatal(err)
	}
	d.p = p
	ready := make(chan bool, 1)
	go func() {
		out := bufio.NewReader(p.Stdout)
		line, _ := out.ReadString('\n')
		ready <- strings.Contains(line, `"url"`)
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case ok := <-ready:
		if ok {
			return
		}
	case <-time.After(patience):
	}
	p.Kill()
	d.t.Fatalf("ossicle does not serve: %s", p.Stderr())
}

// terminate ends the daemon in good order.
func (d *daemon) terminate() {
	d.t.Helper()
	if err := syscall.Kill(d.p.Pid(), syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.p.Done():
		if err := d.p.Wait(); err != nil {
			d.t.Errorf("%v: %s", err, d.p.Stderr())
		}
	case <-time.After(patience):
		d.t.Fatalf("it does not end: %s", d.p.Stderr())
	}
}

// open sends a request to the API with the token of the data directory.
func (d *daemon) open(ctx context.Context, method, path, body string, header ...string) *http.Response {
	d.t.Helper()
	token, err := httpserver.ReadTokenFile(filepath.Join(d.data, "token"))
	if err != nil {
		d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.addr+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	return res
}

// call is open with an answer that ends.
func (d *daemon) call(method, path, body string, header ...string) []byte {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	res := d.open(ctx, method, path, body, header...)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s, %v: %s", path, res.Status, err, b)
	}
	return b
}

func (d *daemon) post(path, body string) []byte {
	d.t.Helper()
	return d.call(http.MethodPost, path, body)
}
