package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/guard"
)

// writtenApart is the end of the name of the table that writeGuarded uses, beside that of [apart].
const writtenApart = "_written"

// apart returns the URL of a table of its own.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	own = driverutil.WithParam(rawURL, paramTable, name)
	return own, func(ctx context.Context) error { return drop(ctx, own) }
}

// drop removes the table of a URL, and the one beside it.
func drop(ctx context.Context, rawURL string) error {
	l, err := connect(rawURL, []Option{onlyReads})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	return l.do(ctx, "remove", "", nil, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "DROP TABLE IF EXISTS "+l.config.table.quoted()+", "+l.written())
		return err
	})
}

// written is the quoted name of the table beside that of the locks.
func (l *Locker) written() string {
	return tableName{l.config.table.schema, l.config.table.name + writtenApart}.quoted()
}

// writeGuarded implements [driver.Description.WriteGuarded].
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	err = l.do(ctx, "guard", lease.Name, nil, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+l.written()+" (name text PRIMARY KEY, value text NOT NULL)"); err != nil {
			return err
		}
		g, err := NewGuard(l, c, pgx.TxOptions{})
		if err != nil {
			return err
		}
		return g.Do(ctx, guard.Unnoticed(ctx, lease), func(ctx context.Context, tx pgx.Tx) error {
			err := tx.QueryRow(ctx, "SELECT value FROM "+l.written()+" WHERE name = $1", lease.Name).Scan(&before)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO "+l.written()+" VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2", lease.Name, value)
			return err
		})
	})
	return before, err
}
