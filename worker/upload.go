package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"

	"github.com/go-json-experiment/json"
)

// Bounds of an upload.
const (
	maxOutputs = 1000
	maxAnswer  = 4 << 10 // bytes of the gateway's answer to one upload
)

// Upload puts every regular file below dir into the gateway's artifact store, by
// the same way and token as the channel, and reports what it put there: for
// [Executors].Flush. A directory that is not there has nothing. Links and devices
// are left out. The report says that all was flushed only if all was; the error
// joins what was not. transport is that of [Options], nil for one of its own.
func Upload(ctx context.Context, env Environment, dir string, transport http.RoundTripper) (Report, error) {
	d, done, err := newDialer(env.ControlURL, env.Token, transport)
	if err != nil {
		return Report{}, err
	}
	defer done()
	base, err := uploadURL(env.ControlURL, env.SessionID)
	if err != nil {
		return Report{}, err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{OutputsFlushed: true}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("open outputs: %w", err)
	}
	defer root.Close()
	var r Report
	var errs []error
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		if len(r.Outputs) == maxOutputs {
			errs = append(errs, fmt.Errorf("upload outputs: there are more than %d", maxOutputs))
			return fs.SkipAll
		}
		o, err := d.upload(ctx, root, name, base)
		if err != nil {
			errs = append(errs, fmt.Errorf("upload %s: %w", name, err))
			return ctx.Err()
		}
		r.Outputs = append(r.Outputs, o)
		return nil
	})
	err = errors.Join(append(errs, err)...)
	r.OutputsFlushed = err == nil
	return r, err
}

// uploadURL is where the artifacts of a session go: beside the control URL.
func uploadURL(control, session string) (string, error) {
	u, err := url.Parse(control)
	if err != nil {
		return "", &ConfigError{EnvControlURL + " is not a URL"}
	}
	scheme, host := u.Scheme, u.Host
	switch scheme {
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	case "unix":
		scheme, host = "http", "sandbox"
	}
	return scheme + "://" + host + "/v1/sessions/" + url.PathEscape(session) + "/artifacts/", nil
}

// upload puts one file. It is read twice: its name is its hash.
func (d *dialer) upload(ctx context.Context, root *os.Root, name, base string) (Output, error) {
	f, err := root.Open(name)
	if err != nil {
		return Output{}, err
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Output{}, err
	}
	token, err := d.token()
	if err != nil {
		return Output{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+hex.EncodeToString(hash.Sum(nil)), io.LimitReader(f, size))
	if err != nil {
		return Output{}, err
	}
	req.ContentLength = size
	if size == 0 {
		req.Body = http.NoBody
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := d.client.Do(req)
	if err != nil {
		return Output{}, errors.New(dialCause(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Output{}, err
	}
	var stored struct {
		URI string `json:"uri"`
	}
	if resp.StatusCode != http.StatusCreated || json.Unmarshal(answer, &stored) != nil || stored.URI == "" {
		return Output{}, fmt.Errorf("the gateway answered HTTP %d", resp.StatusCode)
	}
	name = filepath.ToSlash(name)
	return Output{URI: stored.URI, Name: name, MIMEType: mime.TypeByExtension(path.Ext(name)), Size: size}, nil
}
