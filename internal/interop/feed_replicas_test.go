package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/sse"
)

// The same traffic on one replica and on three that share PostgreSQL and Redis:
// what a delivery costs, what the database spends on an event, and how long an
// event takes to subscribers of other replicas than its publisher's.
func BenchmarkFeedReplicas(b *testing.B) {
	pg := testserver.PostgreSQL(b, "fsync=on")
	bus := testserver.Redis(b)
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("replicas=%d", n), func(b *testing.B) {
			s := newSite(b, n, "--store", pg.Database(b), "--bus", "redis://"+bus.Addr+"?prefix="+fmt.Sprint("bench", n))
			for b.Loop() {
				measureReplicas(b, pg, s)
			}
		})
	}
}

// The traffic of BenchmarkFeedReplicas.
const (
	benchSubscribers = 300
	benchEvents      = 500
	benchRate        = 50 // events each second
)

func measureReplicas(b *testing.B, pg *testserver.Postgres, s *site) {
	b.Helper()
	tr := newTraffic(s)
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var latencies []time.Duration
	var reading sync.WaitGroup
	for i := range benchSubscribers {
		r := newReader("bench", s, false, "bench")
		body, err := r.connect(ctx, s.replicas[i%len(s.replicas)].addr)
		if err != nil {
			b.Fatal(err)
		}
		reading.Go(func() {
			defer r.http.CloseIdleConnections()
			defer func() { _ = body.Close() }()
			in := sse.NewReader(body, 0)
			var mine []time.Duration
			for range benchEvents {
				e, err := in.Next()
				if err != nil {
					b.Error(err)
					break
				}
				if sent, err := strconv.ParseInt(tokenOf(e.Data), 10, 64); err == nil {
					mine = append(mine, time.Since(time.Unix(0, sent)))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, mine...)
		})
	}
	replicas, database := s.cpu(b), postgresCPU(b, pg)
	begun := time.Now()
	for i := range benchEvents {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / benchRate)))
		body := fmt.Sprintf(`{"data":{"token":"%d","pad":%q}}`, time.Now().UnixNano(), padding[:150])
		addr := s.replicas[i%len(s.replicas)].addr
		if _, err := tr.postTo(ctx, addr, "bench", "", []byte(body)); err != nil {
			b.Fatal(err)
		}
	}
	reading.Wait()
	tr.http.CloseIdleConnections()
	slices.Sort(latencies)
	if len(latencies) == 0 {
		b.Fatal("nothing arrived")
	}
	at := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(float64((s.cpu(b)-replicas).Microseconds())/float64(len(latencies)), "cpu-us/delivery")
	b.ReportMetric(float64((postgresCPU(b, pg)-database).Microseconds())/benchEvents, "postgres-us/event")
}

// cpu is what the replicas have used of the processors.
func (s *site) cpu(tb testing.TB) (sum time.Duration) {
	tb.Helper()
	for _, r := range s.replicas {
		p, err := processOf(strconv.Itoa(r.running.Pid()))
		if err != nil {
			tb.Fatal(err)
		}
		sum += p.cpu
	}
	return sum
}

// postgresCPU is that of a server's processes, also of those that have ended.
func postgresCPU(tb testing.TB, pg *testserver.Postgres) (sum time.Duration) {
	tb.Helper()
	main, _, _ := strings.Cut(pg.SQL(tb, pg.DSN, `SELECT pg_read_file('postmaster.pid', 0, 20)`), "\n")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range stats {
		pid := filepath.Base(filepath.Dir(path))
		p, err := processOf(pid)
		switch {
		case err != nil: // it has ended
		case pid == main:
			sum += p.cpu + p.ended
		case p.parent == main:
			sum += p.cpu
		}
	}
	return sum
}

// proc is what /proc says of a process.
type proc struct {
	parent     string
	cpu, ended time.Duration // of itself, and of its children that have ended
}

func processOf(pid string) (p proc, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return p, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	p.parent = fields[1]
	for i, d := range []*time.Duration{&p.cpu, &p.cpu, &p.ended, &p.ended} {
		ticks, err := strconv.Atoi(fields[11+i])
		if err != nil {
			return p, err
		}
		*d += time.Duration(ticks) * 10 * time.Millisecond
	}
	return p, nil
}
