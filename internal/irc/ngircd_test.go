package irc

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/testserver"
)

// These tests talk to a real server, ngIRCd, which they start themselves.

// patience bounds every wait for the server.
const patience = 30 * time.Second

// ngircd is a running server.
type ngircd struct {
	t    *testing.T
	addr string
	args []string
	p    *process.Process
}

// startServer starts ngIRCd on a free port of its own, or skips the test.
func startServer(t *testing.T, global, rest string) *ngircd {
	t.Helper()
	program, err := exec.LookPath("ngircd")
	if err != nil {
		program = "/usr/sbin/ngircd" // not in the PATH of ordinary users
	}
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatal("ngircd is not installed")
		}
		t.Skip("ngircd is not installed")
	}
	addr := testserver.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "ngircd.conf")
	text := fmt.Sprintf("[Global]\nName = irc.test\nInfo = test\nAdminInfo1 = test\nAdminEMail = test@irc.test\nListen = 127.0.0.1\nPorts = %s\n"+
		"MotdPhrase = hello\nPidFile =\n%s\n[Limits]\nMaxNickLength = 12\nMaxConnectionsIP = 0\n[Options]\nDNS = no\nIdent = no\nPAM = no\n%s\n", port, global, rest)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil { //nolint:gosec // the server reads it as nobody
		t.Fatal(err)
	}
	s := &ngircd{t: t, addr: addr, args: []string{program, "-n", "-f", conf}}
	s.start()
	t.Cleanup(func() { s.p.Kill() })
	return s
}

// start returns when the server says that it is ready.
func (s *ngircd) start() {
	s.t.Helper()
	p, err := process.Start(process.Options{Args: s.args})
	if err != nil {
		s.t.Fatal(err)
	}
	s.p = p
	ready := make(chan bool, 1)
	go func() {
		defer close(ready)
		for out := bufio.NewScanner(p.Stdout); out.Scan(); {
			if strings.HasSuffix(out.Text(), " ready.") {
				ready <- true
			}
		}
		_, _ = io.Copy(io.Discard, p.Stdout)
	}()
	select {
	case ok := <-ready:
		if !ok {
			s.t.Fatalf("ngircd ended: %s", p.Stderr())
		}
	case <-time.After(patience):
		s.t.Fatal("ngircd is not ready")
	}
}

// human is somebody in the chat.
type human struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (s *ngircd) human(nick string, channels ...string) *human {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	h := &human{t: s.t, conn: conn, r: bufio.NewReader(conn)}
	h.say("NICK "+nick, "USER "+nick+" 0 * :A human")
	h.await(" 376 ")
	for _, c := range channels {
		h.say("JOIN " + c)
		h.await(" 366 " + nick + " " + c)
	}
	return h
}

func (h *human) say(lines ...string) {
	h.t.Helper()
	for _, s := range lines {
		if _, err := h.conn.Write([]byte(s + "\r\n")); err != nil {
			h.t.Fatal(err)
		}
	}
}

// await reads up to a line that contains text, and returns it.
func (h *human) await(text string) string {
	h.t.Helper()
	_ = h.conn.SetReadDeadline(time.Now().Add(patience))
	var before []string
	for {
		s, err := h.r.ReadString('\n')
		if err != nil {
			h.t.Fatalf("waiting for %q: %v; there was %q", text, err, before)
		}
		s = strings.TrimRight(s, "\r\n")
		if token, ok := strings.CutPrefix(s, "PING "); ok {
			h.say("PONG " + token)
		}
		if strings.Contains(s, text) {
			return s
		}
		before = append(before, s)
	}
}

// start runs a client until the end of the test.
func start(t *testing.T, c *Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func next(t *testing.T, heard <-chan Message) Message {
	t.Helper()
	select {
	case m := <-heard:
		return m
	case <-time.After(patience):
		t.Fatal("nothing was heard")
		return Message{}
	}
}

// N-14 on a real server: who addresses the nick is heard, replies go back, long
// ones arrive whole, our nick is taken back from its holder, and we part.
func TestRealServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "", "")
	holder := s.human("ossi", "#a")
	eve := s.human("eve", "#a", "#b")
	heard := make(chan Message, 10)
	client, err := New(s.addr, "ossi", func(m Message) { heard <- m }, &Options{Channels: []string{"#a", "#b"}, Realname: "The Ear", MaxLines: 6})
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, client)
	eve.await(":ossi_!~ossi@127.0.0.1 JOIN :#b")
	eve.say("PRIVMSG #a :ossi: one", "PRIVMSG #b :@ossi_ \x02two\x02", "PRIVMSG ossi_ :three", "PRIVMSG #a :nothing for you")
	for _, want := range []Message{{From: "eve", Text: "one"}, {From: "eve", Text: "two"}, {From: "eve", Text: "three", Private: true}} {
		m := next(t, heard)
		wantMessages(t, []Message{m}, want)
		if err := m.Channel.Publish(t.Context(), agent.Reply{Text: "re: " + m.Text + "\r\nQUIT :injected"}); err != nil {
			t.Error(err)
		}
		to := m.Channel.Name()
		if m.Private {
			to = "eve"
		}
		eve.await(":ossi_!~ossi@127.0.0.1 PRIVMSG " + to + " :re: " + m.Text)
		eve.await(" PRIVMSG " + to + " :QUIT :injected")
	}
	holder.say("QUIT :bye")
	eve.await(":ossi_!~ossi@127.0.0.1 NICK :ossi")
	eve.say("PRIVMSG #b :ossi, and now much")
	m := next(t, heard)
	wantMessages(t, []Message{m}, Message{From: "eve", Text: "and now much"})
	var words []string
	for i := range 1000 {
		words = append(words, fmt.Sprintf("wörd%d", i))
	}
	if err := m.Channel.Publish(t.Context(), agent.Reply{Text: strings.Join(words, " ")}); err != nil {
		t.Error(err)
	}
	var got []string
	for range 6 {
		line := eve.await(" PRIVMSG #b :")
		if !strings.HasPrefix(line, ":ossi!") || len(line) > 510 {
			t.Errorf("%d bytes: %s", len(line), line)
		}
		_, text, _ := strings.Cut(line, " #b :")
		got = append(got, strings.Fields(text)...)
	}
	if !slices.Equal(got, words[:len(got)]) || len(got) < 200 {
		t.Errorf("%d words: %v", len(got), got)
	}
	if note := eve.await(" PRIVMSG #b :"); !strings.Contains(note, " more lines)") {
		t.Errorf("the note is %s", note)
	}
	stop()
	eve.await(":ossi!~ossi@127.0.0.1 QUIT :")
	eve.say("WHOIS ossi")
	eve.await(" 401 eve ossi ")
}

// N-14: a server that is killed and started again has us back, with what was
// published meanwhile.
func TestRealServerRestarts(t *testing.T) {
	t.Parallel()
	s := startServer(t, "", "")
	eve := s.human("eve", "#a")
	heard := make(chan Message, 10)
	client, err := New(s.addr, "ossi", func(m Message) { heard <- m }, &Options{Channels: []string{"#a"}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, client)
	eve.await(" JOIN :#a")
	s.p.Kill()
	published := make(chan error, 1)
	go func() { published <- client.Channels()[0].Publish(t.Context(), agent.Reply{Text: "meanwhile"}) }()
	s.start()
	eve = s.human("eve", "#a")
	if err := <-published; err != nil {
		t.Error(err)
	}
	eve.say("PRIVMSG #a :ossi: are you back?")
	for {
		// It may not be yet: then it shows itself by joining.
		select {
		case m := <-heard:
			wantMessages(t, []Message{m}, Message{From: "eve", Text: "are you back?"})
			return
		case <-time.After(200 * time.Millisecond):
			eve.say("PRIVMSG #a :ossi: are you back?")
		case <-t.Context().Done():
			return
		}
	}
}

// A server with TLS and a password: what is wrong is said, and what is right
// works.
func TestRealServerWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := certificate(t, dir)
	addr := testserver.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	startServer(t, "Password = open sesame", fmt.Sprintf("[SSL]\nCertFile = %s/cert.pem\nKeyFile = %s/key.pem\nPorts = %s\n", dir, dir, port))
	for name, o := range map[string]*Options{
		"password":    {TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, Password: "wrong"},
		"certificate": {TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, Password: "open sesame"},
	} {
		client, err := New(addr, "ossi", func(Message) {}, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err = client.Run(ctx)
		if refused := errors.As(err, new(*RefusedError)); err == nil || refused != (name == "password") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %v", name, err)
		}
	}
	client, err := New(addr, "ossi", func(Message) {}, &Options{Channels: []string{"#a"}, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, Password: "open sesame"})
	if err != nil {
		t.Fatal(err)
	}
	start(t, client)
	if err := client.Channels()[0].Publish(t.Context(), agent.Reply{Text: "hello"}); err != nil {
		t.Error(err)
	}
}

// certificate writes cert.pem and key.pem for 127.0.0.1.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "irc.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o644); err != nil { //nolint:gosec // for this test only, and read by nobody
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return pool
}

// W-152, W-153, W-154, W-155, N-13, over a real server: inputs that arrive
// during a run are answered once, where the last of them came from; replies to
// notices go where the agent was last addressed, at first to the first channel.
func TestRepliesOverRealServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "", "")
	eve := s.human("eve", "#first", "#second")
	began, release := make(chan struct{}), make(chan struct{})
	slow := func(turn *agenttest.Turn) (agent.Outcome, error) {
		close(began)
		<-release
		turn.Emit(agent.Text{Text: "slow answer"})
		return agenttest.End()
	}
	a := agenttest.New(agenttest.Say("first notice"), slow, agenttest.Say("answer to three"), agenttest.Say("answer to one"), agenttest.Say("second notice"), agenttest.Say("NO_REPLY"), agenttest.Say("the end"))
	var session *agent.Session
	heard := make(chan *agent.Ticket, 10)
	client, err := New(s.addr, "ossi", func(m Message) {
		ticket, err := session.Submit(m.Input())
		if err != nil {
			t.Error(err)
		}
		heard <- ticket
	}, &Options{Channels: []string{"#first", "#second"}, Burst: 20})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(notices []agent.Notice, _ bool) string { return fmt.Sprint(len(notices), " notices") }
	session, err = agent.NewSession("s1", a.New, agent.NewMemoryStore(0, 0), frame, &agent.Options{Channels: client.Channels()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	start(t, client)
	say := func(to, text string) *agent.Ticket {
		t.Helper()
		eve.say("PRIVMSG " + to + " :" + text)
		select {
		case ticket := <-heard:
			return ticket
		case <-time.After(patience):
			t.Fatal("it was not heard")
			return nil
		}
	}
	notify := func(id string) {
		t.Helper()
		if err := session.Notify(agent.Notice{ID: id, Text: "MODIFIED"}, func(agent.Ack) {}); err != nil {
			t.Fatal(err)
		}
	}
	eve.await(":ossi!~ossi@127.0.0.1 JOIN :#second")
	notify("n1")
	eve.await(" PRIVMSG #first :first notice")
	say("#second", "ossi: question")
	<-began // what comes from here on comes during the run
	say("#second", "ossi: one")
	say("#first", "ossi, two")
	say("ossi", "three")
	close(release)
	eve.await(" PRIVMSG #second :slow answer")
	eve.await(" PRIVMSG eve :answer to three")
	say("#second", "@ossi one more")
	eve.await(" PRIVMSG #second :answer to one")
	notify("n2")
	eve.await(" PRIVMSG #second :second notice")
	ticket := say("#second", "ossi: thanks")
	waiting, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if r, err := ticket.Wait(waiting); err != nil || !r.Suppressed {
		t.Errorf("%+v, %v", r, err)
	}
	say("#first", "ossi: bye")
	if line := eve.await(" PRIVMSG "); !strings.HasSuffix(line, " PRIVMSG #first :the end") {
		t.Errorf("NO_REPLY was published: %s", line)
	}
}
