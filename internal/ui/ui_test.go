package ui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

// server serves a page of three files as the routes say.
func server(t *testing.T) *http.ServeMux {
	t.Helper()
	p, err := open(fstest.MapFS{
		"index.html":         {Data: []byte("<!doctype html><title>x</title>")},
		"favicon.svg":        {Data: []byte("<svg/>")},
		"assets/app-1234.js": {Data: []byte(strings.Repeat("console.log(1);\n", 500))},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range p.Routes() {
		if !r.Open {
			t.Errorf("%s asks for a token, which the page is there to ask for", r.Pattern)
		}
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux
}

func get(t *testing.T, h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	t.Parallel()
	mux := server(t)
	for _, tc := range []struct {
		path, kind, cache string
		status            int
	}{
		{"/", "text/html; charset=utf-8", "no-store", http.StatusOK},
		{"/favicon.svg", "image/svg+xml", "no-store", http.StatusOK},
		{"/assets/app-1234.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", http.StatusOK},
		{"/assets/app-9999.js", "application/problem+json", "no-store", http.StatusNotFound},
		{"/assets/", "application/problem+json", "no-store", http.StatusNotFound},
		{"/assets/../index.html", "", "", http.StatusTemporaryRedirect},
	} {
		w := get(t, mux, http.MethodGet, tc.path)
		if h := w.Header(); w.Code != tc.status || tc.kind != "" && (h.Get("Content-Type") != tc.kind || h.Get("Cache-Control") != tc.cache) {
			t.Errorf("%s: %d %v", tc.path, w.Code, h)
		}
	}
	for _, path := range []string{"/index.html", "/sessions/a"} {
		if w := get(t, mux, http.MethodGet, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d; only / is the page", path, w.Code)
		}
	}
	if w := get(t, mux, http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	t.Parallel()
	mux := server(t)
	for _, path := range []string{"/", "/assets/app-1234.js", "/assets/none.js"} {
		h := get(t, mux, http.MethodGet, path).Header()
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'self'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part+";") && !strings.HasSuffix(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestCompressionAndTags(t *testing.T) {
	t.Parallel()
	mux := server(t)
	const path = "/assets/app-1234.js"
	plain := get(t, mux, http.MethodGet, path)
	packed := get(t, mux, http.MethodGet, path, "Accept-Encoding", "br, gzip;q=0.5")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > plain.Body.Len()/10 || packed.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("%d bytes, %v", packed.Body.Len(), packed.Header())
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || string(text) != plain.Body.String() {
		t.Errorf("unpacked %d bytes, %v", len(text), err)
	}
	if w := get(t, mux, http.MethodGet, path, "Accept-Encoding", "gzip;q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed for one who does not take it")
	}
	tag := plain.Header().Get("ETag")
	for _, sent := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if w := get(t, mux, http.MethodGet, path, "If-None-Match", sent); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s: %d", sent, w.Code)
		}
	}
	if w := get(t, mux, http.MethodGet, path, "If-None-Match", `"x"`); w.Code != http.StatusOK {
		t.Errorf("another tag: %d", w.Code)
	}
	head := get(t, mux, http.MethodHead, path)
	if head.Body.Len() != 0 || head.Header().Get("Content-Length") != plain.Header().Get("Content-Length") {
		t.Errorf("HEAD: %d bytes, %v", head.Body.Len(), head.Header())
	}
}

func TestThereIsAPage(t *testing.T) {
	t.Parallel()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	text := string(p.files[indexFile].text)
	if strings.Contains(text, "<style") || strings.Contains(text, " style=") {
		t.Error("the page has inline styles, which its policy forbids")
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "<script")
		if !found {
			break
		}
		tag, body, _ := strings.Cut(after, ">")
		if code, _, _ := strings.Cut(body, "</script>"); !strings.Contains(tag, "src=") || strings.TrimSpace(code) != "" {
			t.Error("the page has an inline script, which its policy forbids")
		}
		rest = body
	}
	if _, err := open(fstest.MapFS{"x": {}}); err == nil {
		t.Error("a build without a page is taken")
	}
}
