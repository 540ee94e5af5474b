package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ossicle/ossicle/internal/testserver"
)

// A server that waits for the disk.
func durableDatabase(b *testing.B, settings ...string) string {
	b.Helper()
	settings = append(settings, "fsync=on", "checkpoint_timeout=30min", "max_wal_size=4GB")
	return testserver.PostgreSQL(b, settings...).Database(b)
}

const (
	benchTable  = `CREATE TABLE items (id bigserial PRIMARY KEY, body jsonb NOT NULL)`
	benchInsert = `INSERT INTO items (body) VALUES ($1)`
	benchPlain  = `CREATE FUNCTION plain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES ('items', 'insert', NEW.id::text, to_jsonb(NEW)::text); RETURN NULL; END $$;
		CREATE TRIGGER plain AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION plain()`
	benchNotify = `CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES ('items', 'insert', NEW.id::text, to_jsonb(NEW)::text);
		PERFORM pg_notify('ossicle_outbox', ''); RETURN NULL; END $$;
		CREATE TRIGGER ring AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION ring()`
)

func benchBody(n int64) string {
	return fmt.Sprintf(`{"t":%d,"p":"%s"}`, n, strings.Repeat("x", 150))
}

// commits has writers insert a row per transaction for a while, and returns how
// many each second.
func commits(b *testing.B, pool *pgxpool.Pool, writers int, d time.Duration) float64 {
	b.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for range writers {
		wg.Go(func() {
			for time.Since(begun) < d {
				if _, err := pool.Exec(b.Context(), benchInsert, benchBody(0)); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(begun).Seconds()
}

func writersPool(b *testing.B, dsn string, n int32) *pgxpool.Pool {
	b.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns, config.MinConns = n, n
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

// BenchmarkWriters has 32 writers commit rows of a table without a trigger, with
// ours and a drain at work, with one that notifies for each row, and with the
// least that there can be, a bare insert that nobody drains, in turns.
// The target is 0.8 of the commits without a trigger. A disk that is fast leaves
// nothing to be seen but the processor; so it is measured as well with one that
// takes 5 ms more.
func BenchmarkWriters(b *testing.B) {
	b.Run("disk=this", func(b *testing.B) { benchmarkWriters(b) })
	b.Run("disk=5ms", func(b *testing.B) { benchmarkWriters(b, "commit_delay=5000", "commit_siblings=1") })
}

func benchmarkWriters(b *testing.B, settings ...string) {
	b.Helper()
	const writers, round, rounds = 32, 700 * time.Millisecond, 10
	r := newRig(b, durableDatabase(b, settings...), nil)
	r.exec(benchTable)
	pool := writersPool(b, r.dsn, writers)
	var none, plain, ours, notify float64
	for b.Loop() {
		for range rounds {
			none += commits(b, pool, writers, round)
			r.exec(benchPlain)
			plain += commits(b, pool, writers, round)
			r.exec(`DROP FUNCTION plain() CASCADE; TRUNCATE ossicle.feed_outbox`)
			r.install(Capture{Table: "items", Columns: []string{"id", "body"}})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- r.db.Outbox(nil).Run(ctx) }()
			ours += commits(b, pool, writers, round)
			if err := r.db.Uninstall(b.Context(), "items"); err != nil {
				b.Fatal(err)
			}
			r.exec(benchNotify)
			notify += commits(b, pool, writers, round)
			r.exec(`DROP FUNCTION ring() CASCADE`)
			cancel()
			<-done
		}
	}
	n := float64(b.N * rounds)
	b.ReportMetric(none/n, "none/s")
	b.ReportMetric(ours/n, "ours/s")
	b.ReportMetric(notify/n, "notify/s")
	b.ReportMetric(ours/none, "ratio")
	b.ReportMetric(plain/none, "bare-ratio")
	b.ReportMetric(ours/notify, "times-notify")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDrain moves rows of about 200 bytes that wait. The target is 10,000
// rows/s, each batch on the disk.
func BenchmarkDrain(b *testing.B) {
	const rows = 50_000
	r := newRig(b, durableDatabase(b), nil)
	var took time.Duration
	for b.Loop() {
		r.exec(`INSERT INTO ossicle.feed_outbox (topic, type, key, data)
			SELECT 'items', 'insert', g::text, '{"t": ' || g || ', "p": "' || repeat('x', 170) || '"}' FROM generate_series(1, $1) g`, rows)
		begun := time.Now()
		r.drain()
		took += time.Since(begun)
	}
	b.ReportMetric(float64(rows*b.N)/took.Seconds(), "rows/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAcross writes 500 rows a second, of four writers, and measures from the
// end of the commit to a subscriber of another connection. The target is 50 ms at
// the 99th percentile.
func BenchmarkAcross(b *testing.B) {
	const writers, rate = 4, 500
	r := newRig(b, durableDatabase(b), nil)
	r.exec(benchTable)
	r.install(Capture{Table: "items", Columns: []string{"id"}})
	r.run(r.db)
	s := r.follow(openAt(b, r.dsn, nil))
	var mu sync.Mutex
	committed := map[string]time.Time{}
	arrived := map[string]time.Time{}
	const seconds = 5
	for b.Loop() {
		var wg sync.WaitGroup
		begun := time.Now()
		for w := range writers {
			conn := r.connect()
			wg.Go(func() {
				for i := w; i < rate*seconds; i += writers {
					time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / rate))) // real time is what is measured
					var id int64
					if err := conn.QueryRow(b.Context(), benchInsert+` RETURNING id`, benchBody(0)).Scan(&id); err != nil {
						b.Error(err)
						return
					}
					now := time.Now()
					mu.Lock()
					committed[fmt.Sprint(id)] = now
					mu.Unlock()
				}
			})
		}
		for n := 0; n < rate*seconds; {
			for _, e := range take(b, s, 1) {
				arrived[e.Key] = time.Now()
				n++
			}
		}
		wg.Wait()
	}
	report(b, committed, arrived)
}

func report(b *testing.B, committed, arrived map[string]time.Time) {
	b.Helper()
	var took []time.Duration
	for key, at := range committed {
		if a, ok := arrived[key]; ok {
			took = append(took, max(0, a.Sub(at)))
		} else {
			b.Errorf("row %s was lost", key)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	b.ReportMetric(float64(len(committed)-len(arrived)), "lost")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLongTransaction has 16 writers commit while a transaction that wrote
// first is open for 3 s. The target is 1 s at the 99th percentile for the
// others, and none lost.
func BenchmarkLongTransaction(b *testing.B) {
	const writers = 16
	r := newRig(b, durableDatabase(b), nil)
	r.exec(benchTable)
	r.install(Capture{Table: "items", Columns: []string{"id"}})
	r.run(r.db)
	s := r.follow(openAt(b, r.dsn, nil))
	pool := writersPool(b, r.dsn, writers)
	var mu sync.Mutex
	committed := map[string]time.Time{}
	arrived := map[string]time.Time{}
	for b.Loop() {
		long, err := r.conn.Begin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		insert := func(q interface {
			QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
		},
		) string {
			var id int64
			if err := q.QueryRow(b.Context(), benchInsert+` RETURNING id`, benchBody(0)).Scan(&id); err != nil {
				b.Error(err)
			}
			return fmt.Sprint(id)
		}
		first := insert(long)
		var wg sync.WaitGroup
		begun := time.Now()
		for range writers {
			wg.Go(func() {
				for time.Since(begun) < 4*time.Second {
					id := insert(pool)
					now := time.Now()
					mu.Lock()
					committed[id] = now
					mu.Unlock()
				}
			})
		}
		wg.Go(func() {
			time.Sleep(3 * time.Second) // the transaction is open for that long
			if err := long.Commit(b.Context()); err != nil {
				b.Error(err)
			}
			mu.Lock()
			committed[first] = time.Now()
			mu.Unlock()
		})
		over := make(chan struct{})
		go func() { wg.Wait(); close(over) }()
		for all := false; !all; {
			for _, e := range take(b, s, 1) {
				arrived[e.Key] = time.Now()
			}
			select {
			case <-over:
				all = len(arrived) >= len(committed)
			default:
			}
		}
	}
	report(b, committed, arrived)
}
