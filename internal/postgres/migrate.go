package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Advisory locks, of the class "ossi". The schema knows the second by its numbers.
const (
	lockClass   = 0x6f737369
	lockMigrate = 1
	lockAwake   = 2
)

// migrate brings the schema up to date, one process at a time. Others wait in the
// server.
func migrate(ctx context.Context, config *pgx.ConnConfig) (err error) {
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	// The lock goes with the connection, which is closed, not kept.
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1, $2)`, lockClass, lockMigrate); err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	if err := makeSchema(ctx, conn); err != nil {
		return err
	}
	sources, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, sources,
		goose.WithTableName("ossicle.schema_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := p.Up(ctx); code(err) == "42501" {
		return fmt.Errorf("migrate: %w; the schema ossicle belongs to another role: connect as that one, or as a member of it", err)
	} else if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if current > target {
		return fmt.Errorf("%w: it is %d and %d is known", ErrNewer, current, target)
	}
	return nil
}

// current checks that the schema is the one that is known.
func current(ctx context.Context, config *pgx.ConnConfig) (err error) {
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	sources, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, sources, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	known := p.ListSources()
	target := known[len(known)-1].Version
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('ossicle.schema_version') IS NOT NULL`).Scan(&exists); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if !exists {
		return ErrNoSchema
	}
	var version int64
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM ossicle.schema_version WHERE is_applied`).Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	switch {
	case version < target:
		return ErrOlder
	case version > target:
		return fmt.Errorf("%w: it is %d and %d is known", ErrNewer, version, target)
	}
	return nil
}

func makeSchema(ctx context.Context, conn *sql.Conn) error {
	var exists bool
	if err := conn.QueryRowContext(ctx, `SELECT to_regnamespace('ossicle') IS NOT NULL`).Scan(&exists); err != nil || exists {
		return err
	}
	if _, err := conn.ExecContext(ctx, `CREATE SCHEMA ossicle`); err != nil && code(err) != "42501" {
		return fmt.Errorf("create schema ossicle: %w", err)
	} else if err != nil {
		return fmt.Errorf("create schema ossicle: %w; the role needs the right CREATE on the database, or somebody else makes the schema and gives it to the role", err)
	}
	return nil
}
