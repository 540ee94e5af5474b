//go:build linux

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	mercureVersion    = "v0.24.2"
	centrifugoVersion = "v6.9.1"

	mercureKey = "the comparison has no secrets, but HS256 wants a key of some length"
)

// mercure is the Mercure hub as a library on net/http. Its transport is the
// local one, without a history, or Bolt.
type mercure struct{ bolt bool }

func (m mercure) name() string {
	if m.bolt {
		return "mercure bolt"
	}
	return "mercure"
}

func (mercure) build(ctx context.Context, bin string) error {
	return goBuild(ctx, "feed/peers/mercure", nil, "build", "-o", filepath.Join(bin, "mercure"), ".")
}

func (m mercure) command(bin, dir string, addr netip.AddrPort, tls *certificate) (*exec.Cmd, error) {
	args := []string{"-listen", addr.String(), "-key", mercureKey}
	if m.bolt {
		args = append(args, "-bolt", filepath.Join(dir, "bolt.db"))
	}
	if tls != nil {
		args = append(args, "-cert", tls.cert, "-cert-key", tls.key)
	}
	return exec.Command(filepath.Join(bin, "mercure"), args...), nil
}

func (mercure) ready(context.Context, string) error { return nil }

// tune keeps the Bolt file in memory for a resume: it syncs the disk for each
// event, so that a long history takes minutes to make.
func (m mercure) tune(scene string) (product, string) {
	if scene == "resume" {
		return m, inMemory
	}
	return m, ""
}

const mercurePath = "/.well-known/mercure"

func (mercure) subscribe(addr netip.AddrPort, since string) []byte {
	if since != "" {
		since = "Last-Event-ID: " + since
	}
	return request(addr.String(), mercurePath+"?topic=feed", since)
}

func (mercure) publish(ctx context.Context, addr netip.AddrPort, payload string) (*http.Request, error) {
	form := url.Values{"topic": {"feed"}, "data": {payload}}
	req, err := newPost(ctx, addr, mercurePath, "application/x-www-form-urlencoded", form.Encode())
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+mercureToken())
	return req, nil
}

// mercureToken lets a publisher publish everything.
func mercureToken() string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"mercure":{"publish":["*"]}}`))
	mac := hmac.New(sha256.New, []byte(mercureKey))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

func (m mercure) position(stream string, _, missed int) string {
	if !m.bolt {
		return ""
	}
	return idOf(stream, missed)
}

// idOf returns the id of the last event that somebody has seen who missed so
// many of a stream.
func idOf(stream string, missed int) string {
	var ids []string
	for frame := range strings.SplitSeq(stream, "\n\n") {
		if !strings.Contains(frame, string(mark)) {
			continue
		}
		for line := range strings.SplitSeq(frame, "\n") {
			if id, found := strings.CutPrefix(line, "id:"); found {
				ids = append(ids, strings.TrimSpace(id))
			}
		}
	}
	if len(ids) <= missed {
		return ""
	}
	return ids[len(ids)-1-missed]
}

// centrifugo is the Centrifugo server with its memory engine, which keeps a
// history, and unidirectional SSE.
type centrifugo struct{ generous bool }

func (centrifugo) name() string { return "centrifugo" }

func (centrifugo) build(ctx context.Context, bin string) error {
	return goBuild(ctx, ".", []string{"GOBIN=" + bin, "GOFLAGS="}, "install", "github.com/centrifugal/centrifugo/v6@"+centrifugoVersion)
}

func (c centrifugo) command(bin, dir string, addr netip.AddrPort, tls *certificate) (*exec.Cmd, error) {
	listen := map[string]any{"address": addr.Addr().String(), "port": strconv.Itoa(int(addr.Port()))}
	if tls != nil {
		listen["tls"] = map[string]any{"enabled": true, "cert_pem": tls.cert, "key_pem": tls.key}
	}
	client := map[string]any{"insecure": true, "allowed_origins": []string{"*"}}
	if c.generous {
		client["recovery_max_publication_limit"], client["queue_max_size"] = 20_000, 16<<20
	}
	config, err := json.Marshal(map[string]any{
		"client":      client,
		"http_api":    map[string]any{"insecure": true},
		"http_server": listen,
		"uni_sse":     map[string]any{"enabled": true},
		"log":         map[string]any{"level": "error"},
		"channel": map[string]any{"without_namespace": map[string]any{
			"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
			"history_size": 20_000, "history_ttl": "1h", "force_recovery": true,
		}},
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, err
	}
	return exec.Command(filepath.Join(bin, "centrifugo"), "-c", path), nil
}

// tune lifts, for a resume, the limits that would have it hand out nothing at
// all: 300 events, and a queue of 1 MiB.
func (centrifugo) tune(scene string) (product, string) {
	return centrifugo{generous: scene == "resume"}, ""
}

func (centrifugo) ready(context.Context, string) error { return nil }

// subscribe puts the position, an object, into the connect command: the streams
// carry no ids.
func (centrifugo) subscribe(addr netip.AddrPort, since string) []byte {
	if since == "" {
		since = "{}"
	}
	connect := url.Values{"cf_connect": {`{"subs":{"feed":` + since + `}}`}}
	return request(addr.String(), "/connection/uni_sse?"+connect.Encode())
}

func (centrifugo) publish(ctx context.Context, addr netip.AddrPort, payload string) (*http.Request, error) {
	return newPost(ctx, addr, "/api/publish", "application/json", `{"channel":"feed","data":`+payload+`}`)
}

var centrifugoEpoch = regexp.MustCompile(`"epoch":"(\w+)"`)

func (centrifugo) position(stream string, events, missed int) string {
	epoch := centrifugoEpoch.FindStringSubmatch(stream)
	if epoch == nil {
		return ""
	}
	return fmt.Sprintf(`{"recover":true,"epoch":%q,"offset":%d}`, epoch[1], events-missed)
}
