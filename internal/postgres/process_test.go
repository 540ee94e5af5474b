package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// dieEnv holds the DSN of a database that a process of its own drains and
// publishes to, dieStepEnv at which of its steps it kills itself.
const (
	dieEnv     = "POSTGRES_TEST_DIE"
	dieStepEnv = "POSTGRES_TEST_DIE_STEP"
)

// dying drains what is there and publishes a batch, and says what was
// acknowledged.
func dying() error {
	ctx := context.Background() //nolint:usetesting // this is no test, but a process
	last, err := strconv.ParseInt(os.Getenv(dieStepEnv), 10, 64)
	if err != nil {
		return err
	}
	db, err := Open(ctx, os.Getenv(dieEnv), &Options{Batch: 3})
	if err != nil {
		return err
	}
	defer db.Close()
	var steps atomic.Int64
	db.stepped = func() {
		if steps.Add(1) == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	o := db.Outbox(nil)
	held, err := o.hold(ctx)
	if err != nil {
		return err
	}
	defer letGo(ctx, held)
	for {
		d, err := o.drain(ctx, 0)
		if err != nil {
			return err
		}
		if d.moved == 0 {
			break
		}
	}
	for i := range 2 {
		drafts := []feed.Draft{{Topic: "b", Type: "up", Data: []byte(`1`)}, {Topic: "b", Type: "up", Data: []byte(`2`), IdempotencyKey: fmt.Sprint(os.Getpid(), i)}}
		if _, err := db.Feed().Append(ctx, drafts); err != nil {
			return err
		}
		fmt.Println("appended")
	}
	return nil
}

// F-4, F-9: a process that drains and publishes is killed at each of its steps in
// turn. Every row is in the log once, in order; what was acknowledged is there; a
// batch is there as a whole or not at all; and nothing that it held is in the way
// of the next.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	rows, batches := 0, 0
	for step := 1; ; step++ {
		r.exec(`INSERT INTO incidents SELECT g FROM generate_series($1::int, $1::int + 6) g`, rows)
		rows += 7
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), dieEnv+"="+r.dsn+"&application_name=dying", dieStepEnv+"="+strconv.Itoa(step))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
			t.Fatalf("step %d: %v", step, err)
		}
		for n := 1; n > 0; { // what the server was sent it still does; nothing tells when that is over
			if err := r.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dying' AND datname = current_database()`).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		events := r.events()
		var keys, published int
		for i, e := range events {
			if i > 0 && e.ID != events[i-1].ID+1 {
				t.Fatalf("step %d: %d after %d", step, e.ID, events[i-1].ID)
			}
			if e.Topic == "b" {
				published++
				continue
			}
			if e.Key != strconv.Itoa(keys) {
				t.Fatalf("step %d: row %s is event %d of the table", step, e.Key, keys)
			}
			keys++
		}
		acknowledged := bytes.Count(out, []byte("\n"))
		if published%2 != 0 || published/2 < batches+acknowledged || published/2 > batches+acknowledged+1 {
			t.Fatalf("step %d: %d published, %d and %d acknowledged", step, published, batches, acknowledged)
		}
		batches = published / 2
		if err == nil {
			if step < 15 || keys != rows {
				t.Errorf("%d steps, %d of %d rows", step, keys, rows)
			}
			return
		}
		r.drain() // nothing is in the way
	}
}

// F-9: a drain that is stopped, not ended, is in nobody's way either.
func TestAStoppedDrain(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.exec(`INSERT INTO incidents SELECT g FROM generate_series(0, 6) g`)
	other := openAt(t, r.dsn, &Options{Batch: 2})
	stopped, goOn := make(chan struct{}), make(chan struct{})
	first := true
	other.stepped = func() {
		if first { // between taking a connection and sending: afterwards the server does the rest alone
			first = false
			close(stopped)
			<-goOn
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := other.Outbox(nil).drain(t.Context(), 0)
		done <- err
	}()
	<-stopped
	r.drain()
	if n := len(r.events()); n != 7 {
		t.Errorf("%d events", n)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(r.events()); n != 7 {
		t.Errorf("%d events", n)
	}
}
