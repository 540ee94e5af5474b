package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/internal/httpserver"
)

//go:embed all:dist
var dist embed.FS

// Policy is the Content-Security-Policy of every file: nothing but what we serve
// ourselves runs, styles or is asked, and nobody frames the page.
const Policy = "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Names of the files that mean something to the server.
const (
	indexFile = "index.html"
	assetsDir = "assets" // whose names change with what is in them
)

// Cache-Control of the two kinds of files.
const (
	neverKept = "no-store" // the page names the assets of this build
	alwaysOld = "public, max-age=31536000, immutable"
)

// minCompressed is the size below which compression gains nothing, in bytes.
const minCompressed = 1 << 10

// Page serves the files. It is safe for concurrent use.
type Page struct{ files map[string]*file }

// New reads the page that was built in. It fails for a build without one.
func New() (*Page, error) {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	return open(built)
}

// open reads a page from a file system.
func open(built fs.FS) (*Page, error) {
	p := &Page{files: map[string]*file{}}
	err := fs.WalkDir(built, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(built, name)
		if err != nil {
			return err
		}
		p.files[name] = newFile(name, text)
		return nil
	})
	if err == nil && p.files[indexFile] == nil {
		err = errors.New("it has no " + indexFile)
	}
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	return p, nil
}

// Routes are those of the page, for httpserver.Options. They are open: the page
// holds nothing that is anybody's, and asks for a token itself.
func (p *Page) Routes() []httpserver.Route {
	routes := []httpserver.Route{
		{Pattern: "GET /{$}", Open: true, Handler: p.handler(func(*http.Request) string { return indexFile })},
		{Pattern: "GET /" + assetsDir + "/", Open: true, Handler: p.handler(named)},
	}
	for name := range p.files {
		if name != indexFile && !strings.Contains(name, "/") && !strings.ContainsAny(name, "{} ") {
			routes = append(routes, httpserver.Route{Pattern: "GET /" + name, Open: true, Handler: p.handler(named)})
		}
	}
	return routes
}

func named(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func (p *Page) handler(name func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		for _, h := range [][2]string{
			{"Content-Security-Policy", Policy},
			{"X-Content-Type-Options", "nosniff"},
			{"X-Frame-Options", "DENY"},
			{"Referrer-Policy", "no-referrer"},
			{"Cross-Origin-Opener-Policy", "same-origin"},
			{"Cross-Origin-Resource-Policy", "same-origin"},
			{"Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"},
		} {
			head.Set(h[0], h[1])
		}
		f := p.files[name(r)]
		if f == nil { // a file of another build, and never the page in its place
			httpserver.WriteProblem(w, http.StatusNotFound, "this build has no such file; load the page again")
			return
		}
		f.serve(w, r)
	})
}

// file is one file of the page.
type file struct {
	text  []byte
	kind  string // media type
	cache string
	etag  string

	once   sync.Once
	packed []byte // compressed at the first request; nil where that gains nothing
}

func newFile(name string, text []byte) *file {
	f := &file{text: text, cache: neverKept, kind: mime.TypeByExtension(path.Ext(name))}
	if kind, ok := kinds[path.Ext(name)]; ok {
		f.kind = kind
	}
	if f.kind == "" {
		f.kind = "application/octet-stream"
	}
	if strings.HasPrefix(name, assetsDir+"/") {
		f.cache = alwaysOld
	}
	sum := sha256.Sum256(text)
	f.etag = `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
	return f
}

// kinds are the media types that do not depend on the machine.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".webmanifest": "application/manifest+json",
	".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
}

// packs are the kinds that compress.
func packs(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "application/") && kind != "application/octet-stream" || kind == kinds[".svg"]
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Cache-Control", f.cache)
	head.Set("ETag", f.etag)
	head.Set("Vary", "Accept-Encoding")
	if matches(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := f.text
	if packed := f.pack(); packed != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		head.Set("Content-Encoding", "gzip")
		text = packed
	}
	head.Set("Content-Type", f.kind)
	head.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client went away
	}
}

// pack compresses the file, once.
func (f *file) pack() []byte {
	f.once.Do(func() {
		if len(f.text) < minCompressed || !packs(f.kind) {
			return
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return
		}
		if _, err := z.Write(f.text); err != nil || z.Close() != nil || b.Len() >= len(f.text) {
			return
		}
		f.packed = b.Bytes()
	})
	return f.packed
}

// matches reports whether an If-None-Match names the tag.
func matches(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
			return true
		}
	}
	return false
}

// takesGzip reports whether an Accept-Encoding allows it.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			weight, ok := strings.CutPrefix(strings.TrimSpace(params), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return !ok || err == nil && q > 0
		}
	}
	return false
}
