package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
)

// S-12: from the call of the sender, over its commit, the bell and the hub, to the
// line on the wire of the last of many listens of another server.
func BenchmarkSignalToWire(b *testing.B) {
	for _, listens := range []int{1, 200} {
		b.Run(fmt.Sprint(listens, " listens"), func(b *testing.B) {
			for range b.N {
				signalToWire(b, listens, 200)
			}
		})
	}
}

func signalToWire(b *testing.B, listens, n int) {
	b.Helper()
	c := config.Default()
	c.Home = b.TempDir()
	join := func(agent string) *mailbox.Member {
		x, err := NewCollaborations(c, "", mailbox.Limits{Signals: 1 << 20}, nil).Open(b.Context(), collaboration)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = x.Close(context.WithoutCancel(b.Context())) })
		m, err := x.Enter(b.Context(), agent)
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	sender, reader := join("a"), join("b")
	sources := listen.NewRegistry(nil)
	defer sources.Close()
	if err := sources.Mount(mcpserver.SignalSource(mcpserver.NewSeat(reader, nil))); err != nil {
		b.Fatal(err)
	}
	server, err := mcpserver.New(sources, listen.NewHub(sources, nil), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW, err := os.Pipe() // as a host has it
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = outR.Close() }()
	served := make(chan error, 1)
	go func() { served <- server.ServeStdio(b.Context(), inR, outW) }()
	lines := bufio.NewReader(outR)
	await := func(what string) {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, what) {
			b.Fatalf("%s, %v", line, err)
		}
	}
	for i := range listens {
		_, err := fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%q]},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n", i+1, mcpserver.SignalsURI(collaboration))
		if err != nil {
			b.Fatal(err)
		}
		await("acknowledged")
	}
	took := make([]time.Duration, n)
	for i := range took {
		time.Sleep(5 * time.Millisecond) // the pace of the sender
		start := time.Now()
		if _, err := sender.Send(b.Context(), mailbox.Draft{To: "b", Content: "x"}); err != nil {
			b.Fatal(err)
		}
		for range listens {
			await("notifications/resources/updated")
		}
		took[i] = time.Since(start)
	}
	_ = inW.Close()
	defer func() { _ = outW.Close() }()
	if err := <-served; err != nil {
		b.Error(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[n/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[n*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}
