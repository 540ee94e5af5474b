package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rowTables are the tables that writers of rows write to, by the topic that
// captures them.
var rowTables = map[string]string{"audit.rows": "audit_rows", "news.rows": "news_rows"}

// write writes rows until stop, some transactions being long: they take their
// place in the outbox early and are committed late. Some are rolled back. What
// became of one whose commit was cut short, the table tells in the end.
func (tr *traffic) write(ctx context.Context, stop <-chan struct{}, dsn, name string) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	topics := []string{"audit.rows", "news.rows"}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(60 * time.Millisecond)):
		}
		if conn == nil || conn.IsClosed() {
			dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
			var err error
			conn, err = pgx.Connect(dialing, dsn)
			cancel()
			if err != nil {
				conn = nil
				continue // it is being restarted
			}
		}
		if err := transact(ctx, conn, rowTables[topics[n%2]], fmt.Sprintf("%s-%d", name, n)); err != nil {
			// A transaction that failed because of the trigger would be refused with
			// an error of the statement, not with the end of the connection.
			if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code[:2] != "57" {
				tr.fault("write %s-%d: %v", name, n, err)
				return
			}
			_ = conn.Close(ctx)
		}
	}
}

// transact inserts some rows, waits, and commits or rolls back.
func transact(ctx context.Context, conn *pgx.Conn, table, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for k := range 1 + rand.IntN(5) {
		if _, err := tx.Exec(ctx, "INSERT INTO "+table+" (token, pad) VALUES ($1, $2)", fmt.Sprintf("%s-%d", token, k), padding); err != nil {
			return err
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // others commit in between
	}
	if rand.IntN(15) == 0 {
		time.Sleep(rand.N(2 * time.Second)) // the late commit is what is tested
	}
	if rand.IntN(8) == 0 {
		return tx.Rollback(ctx)
	}
	return tx.Commit(ctx)
}
