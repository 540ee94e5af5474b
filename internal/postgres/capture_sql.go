package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ossicle/ossicle/feed"
)

// Names of the triggers, before the number of the capture: a partition has those of
// its table besides its own.
const (
	triggerRow      = "ossicle_capture_"
	triggerTruncate = "ossicle_capture_truncate_"
)

// table is one of the database's, as the catalogue knows it.
type table struct {
	oid              uint32
	schema, relation string
	columns          map[string]string // their types
	primary          []string          // columns of the primary key
}

// name is what SQL calls it, label what people do.
func (t table) name() string { return ident(t.schema) + "." + ident(t.relation) }

func (t table) label() string { return t.schema + "." + t.relation }

func (t table) columnNames() []string { return slices.Sorted(maps.Keys(t.columns)) }

// ident quotes a name.
func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal quotes a string, whatever standard_conforming_strings is.
func literal(s string) string {
	return `E'` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `''`) + `'`
}

func literals(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = literal(s)
	}
	return `ARRAY[` + strings.Join(quoted, ", ") + `]::pg_catalog.text[]`
}

func code(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// find looks a table up: by its name as it is, then with its schema, then as SQL
// reads it.
func find(ctx context.Context, tx pgx.Tx, name string) (table, error) {
	t := table{columns: map[string]string{}}
	schema, relation, _ := strings.Cut(name, ".")
	var kind, persistence string
	err := tx.QueryRow(ctx, `SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE (c.relname = $1 AND pg_table_is_visible(c.oid)) OR (n.nspname = $2 AND c.relname = $3) OR c.oid = $4
		ORDER BY c.relname = $1 AND pg_table_is_visible(c.oid) DESC, n.nspname = $2 AND c.relname = $3 DESC LIMIT 1`,
		name, schema, relation, reads(ctx, tx, name)).Scan(&t.oid, &t.schema, &t.relation, &kind, &persistence)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t, fmt.Errorf("%w: %s", ErrNoTable, name)
	case err != nil:
		return t, err
	case kind != "r" && kind != "p", persistence == "t", t.schema == "ossicle", t.schema == "pg_catalog":
		return t, &feed.InvalidError{Field: "table", Reason: t.label() + " is no ordinary or partitioned table of yours"}
	}
	rows, err := tx.Query(ctx, `SELECT a.attname, CASE WHEN y.typtype = 'e' THEN 'enum' ELSE y.typname::text END,
			coalesce(a.attnum = ANY (i.indkey), false)
		FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY array_position(i.indkey::int2[], a.attnum), a.attnum`, t.oid)
	if err != nil {
		return t, err
	}
	var column, kindOf string
	var primary bool
	_, err = pgx.ForEachRow(rows, []any{&column, &kindOf, &primary}, func() error {
		t.columns[column] = kindOf
		if primary {
			t.primary = append(t.primary, column)
		}
		return nil
	})
	return t, err
}

// reads returns the table that SQL means by a name, or 0.
func reads(ctx context.Context, tx pgx.Tx, name string) (oid uint32) {
	inner, err := tx.Begin(ctx) // a name that SQL cannot read is an error, and must not end the transaction
	if err != nil {
		return 0
	}
	var found *uint32
	_ = inner.QueryRow(ctx, `SELECT to_regclass($1)::oid`, name).Scan(&found)
	_ = inner.Rollback(ctx)
	if found == nil {
		return 0
	}
	return *found
}

type trigger struct {
	name string
	id   int64 // of the capture
}

// installed lists our triggers on a table.
func installed(ctx context.Context, tx pgx.Tx, oid uint32) ([]trigger, error) {
	rows, err := tx.Query(ctx, `SELECT t.tgname, substring(p.proname FROM '^capture_([0-9]+)$')::bigint
		FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE t.tgrelid = $1 AND t.tgparentid = 0 AND p.pronamespace = to_regnamespace('ossicle') AND p.proname ~ '^capture_[0-9]+$'`, oid)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t trigger, err error) {
		err = row.Scan(&t.name, &t.id)
		return t, err
	})
}

// planned is a capture that can be installed.
type planned struct {
	table
	Capture

	id     int64
	owner  string // of the schema, if that is somebody else
	old    []trigger
	schema bool // it is there
}

// plan finds out what is there; it changes nothing.
func plan(ctx context.Context, tx pgx.Tx, c Capture) (planned, error) {
	p := planned{Capture: c}
	var err error
	if p.table, err = find(ctx, tx, c.Table); err != nil {
		return p, err
	}
	if err := p.check(p.table); err != nil {
		return p, err
	}
	row := tx.QueryRow(ctx, `SELECT to_regclass('ossicle.feed_capture') IS NOT NULL,
		coalesce((SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'ossicle' AND pg_get_userbyid(nspowner) <> current_user), '')`)
	if err := row.Scan(&p.schema, &p.owner); err != nil {
		return p, err
	}
	p.id = 1
	if !p.schema {
		return p, nil
	}
	if p.old, err = installed(ctx, tx, p.oid); err != nil {
		return p, err
	}
	if len(p.old) > 0 {
		p.id = p.old[0].id
		return p, nil
	}
	err = tx.QueryRow(ctx, `SELECT coalesce(max(id), 0) + 1 FROM ossicle.feed_capture`).Scan(&p.id)
	return p, err
}

func (p *planned) statements() []string {
	function := fmt.Sprintf("ossicle.capture_%d()", p.id)
	statements := []string{
		`SET LOCAL lock_timeout = '5s'`,
		fmt.Sprintf("INSERT INTO ossicle.feed_capture (id, topic, columns, key, ops) VALUES (%d, %s, %s, %s, %s)\n"+
			"    ON CONFLICT (id) DO UPDATE SET topic = EXCLUDED.topic, columns = EXCLUDED.columns, key = EXCLUDED.key, ops = EXCLUDED.ops",
			p.id, literal(p.Topic), literals(p.Columns), literals(p.Key), literals(p.On)),
		p.function(function),
		`REVOKE ALL ON FUNCTION ` + function + ` FROM PUBLIC`,
	}
	if p.owner != "" {
		// It runs with the rights of its owner, who should have none but these.
		statements = append(statements, `ALTER FUNCTION `+function+` OWNER TO `+ident(p.owner))
	}
	for _, t := range p.old {
		statements = append(statements, `DROP TRIGGER `+ident(t.name)+` ON `+p.name())
	}
	statements = append(statements, p.trigger(triggerRow, strings.ToUpper(strings.Join(p.On, " OR ")), "ROW", function)...)
	if slices.Contains(p.On, Delete) {
		statements = append(statements, p.trigger(triggerTruncate, "TRUNCATE", "STATEMENT", function)...)
	}
	return statements
}

// trigger is enabled for changes that a replication applies, too.
func (p *planned) trigger(kind, on, each, function string) []string {
	name := kind + strconv.FormatInt(p.id, 10)
	return []string{
		fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH %s EXECUTE FUNCTION %s", name, on, p.name(), each, function),
		fmt.Sprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", p.name(), name),
	}
}

// plain are the types whose text does not depend on the settings of a session,
// short those of them that make keys as they are.
var (
	plain = []string{"int2", "int4", "int8", "uuid", "bool", "numeric", "text", "varchar", "bpchar", "json", "jsonb", "enum", "name"}
	short = plain[:5]
)

// function is the trigger's. It runs in the writer's transaction, once for each
// row, so what it usually does is little: two expressions and an insert.
//
// It never fails for what is in the row. If the columns cannot be taken, because
// one has changed since, or make too large an event, it takes what it finds by
// their names in the row as a whole; and if that cannot be done either, it tells
// the key, or only that there was a change. The blocks that catch errors write
// nothing, so they cost no transaction ids.
//
// It runs with the rights of its owner, so nothing in it may depend on the
// writer's search path. Where the path is set for the function, that alone costs
// as much as the insert; so each name says its schema, operators too, and the
// path is set only where other settings have to be.
func (p *planned) function(name string) string {
	settings := ""
	if slices.ContainsFunc(slices.Concat(p.Columns, p.Key), func(c string) bool { return !slices.Contains(plain, p.columns[c]) }) {
		settings = "SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 "
	}
	after, before := object("NEW", p.Columns), object("OLD", p.Columns)
	body := fmt.Sprintf(`
DECLARE
    k pg_catalog.text;
    body pg_catalog.text;
    n pg_catalog.jsonb;
    o pg_catalog.jsonb;
    failed pg_catalog.bool;
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN%s
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN%s
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN%s
    ELSE
        INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES (%s, 'truncate', '', %s);
    END IF;
    %s
    RETURN NULL;
END `,
		p.branch(Insert, key("NEW", p.Key), after, ""), p.branch(Update, key("NEW", p.Key), after, before), p.branch(Delete, key("OLD", p.Key), "", before),
		literal(p.Topic), p.data("truncate", "", ""), p.bell())
	return fmt.Sprintf("CREATE OR REPLACE FUNCTION %s RETURNS trigger\nLANGUAGE plpgsql SECURITY DEFINER %sAS %s", name, settings, dollars(body))
}

// branch is what the function does for one kind of change.
func (p *planned) branch(op, key, after, before string) string {
	row, whole := "NEW", ""
	if after == "" {
		row = "OLD"
	}
	if after != "" {
		whole += "n := ossicle.feed_pick(pg_catalog.to_jsonb(NEW), " + literals(p.Columns) + "); "
	}
	if before != "" {
		whole += "o := ossicle.feed_pick(pg_catalog.to_jsonb(OLD), " + literals(p.Columns) + "); "
	}
	clean := "k"
	if slices.ContainsFunc(p.Key, func(c string) bool { return !slices.Contains(short, p.columns[c]) }) {
		clean = "ossicle.feed_key(k)"
	}
	return fmt.Sprintf(`
        BEGIN
            k := %s;
            body := %s;
        EXCEPTION WHEN OTHERS THEN
            body := NULL;
        END;
        IF pg_catalog.octet_length(body) OPERATOR(pg_catalog.<=) %d THEN
            INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES (%s, '%s', COALESCE(%s, ''), body);
        ELSE
            BEGIN
                %sk := COALESCE(k, ossicle.feed_join(pg_catalog.to_jsonb(%s), %s));
            EXCEPTION WHEN OTHERS THEN
                n := NULL;
                o := NULL;
                failed := true;
            END;
            PERFORM ossicle.feed_record(%s, %s, '%s', k, n, o, failed);
        END IF;`, key, p.data(op, after, before), feed.MaxData, literal(p.Topic), op, clean,
		whole, row, literals(p.Key), literal(p.Topic), literal(p.label()), op)
}

// data is an expression for the data of an event.
func (p *planned) data(op, after, before string) string {
	args := []string{"'op'", literal(op), "'table'", literal(p.label())}
	if after != "" {
		args = append(args, "'new'", after)
	}
	if before != "" {
		args = append(args, "'old'", before)
	}
	return `pg_catalog.jsonb_build_object(` + strings.Join(args, ", ") + `)::pg_catalog.text`
}

// bell is the statement that rings.
func (p *planned) bell() string {
	if p.Silent {
		return "-- it does not ring"
	}
	return `IF ossicle.feed_rings() THEN
        PERFORM pg_catalog.pg_notify('` + channelOutbox + `', '');
    END IF;`
}

// object is an expression for the columns of a row. A function has no more than
// a hundred arguments.
func object(row string, columns []string) string {
	var parts []string
	for some := range slices.Chunk(columns, 50) {
		var args []string
		for _, c := range some {
			args = append(args, literal(c), row+"."+ident(c))
		}
		parts = append(parts, `pg_catalog.jsonb_build_object(`+strings.Join(args, ", ")+`)`)
	}
	return strings.Join(parts, " OPERATOR(pg_catalog.||) ")
}

func key(row string, columns []string) string {
	if len(columns) == 0 {
		return "NULL"
	}
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = row + "." + ident(c) + "::pg_catalog.text"
	}
	return strings.Join(parts, ` OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) `)
}

// dollars quotes a function's body.
func dollars(body string) string {
	tag := "$body$"
	for i := 0; strings.Contains(body, tag); i++ {
		tag = fmt.Sprintf("$body%d$", i)
	}
	return tag + body + tag
}

// schemaStatements make the schema as the migrations would, and tell them so.
func schemaStatements() ([]string, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	statements := []string{
		`CREATE SCHEMA ossicle`,
		"CREATE TABLE ossicle.schema_version (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,\n" +
			"    version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())",
		`INSERT INTO ossicle.schema_version (version_id, is_applied) VALUES (0, true)`,
	}
	for i, file := range files {
		text, err := fs.ReadFile(migrations, file)
		if err != nil {
			return nil, err
		}
		var kept []string
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "-- +goose") {
				kept = append(kept, line)
			}
		}
		whole := strings.TrimSpace(strings.Join(kept, ""))
		statements = append(statements, strings.TrimSuffix(whole, ";"),
			fmt.Sprintf(`INSERT INTO ossicle.schema_version (version_id, is_applied) VALUES (%d, true)`, i+1))
	}
	return statements, nil
}
