package mysql

import (
	"context"
	"database/sql"
	"errors"

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
	l, err := Open(ctx, rawURL, onlyReads)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	limited, cancel := context.WithTimeout(ctx, 3*l.store.config.timeout)
	defer cancel()
	_, err = do(limited, l.store, func(ctx context.Context, c session) (sql.Result, error) {
		return c.exec(ctx, "DROP TABLE IF EXISTS "+c.table+", "+c.written())
	})
	return driverutil.OpError("remove", backend, "", err)
}

// written is the quoted name of the table beside that of the locks.
func (k *server) written() string { return "`" + k.database + "`.`" + k.name + writtenApart + "`" }

// writeGuarded implements [driver.Description.WriteGuarded].
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	k, err := do(ctx, l.store, func(ctx context.Context, c session) (*server, error) {
		_, err := c.exec(ctx, "CREATE TABLE IF NOT EXISTS "+c.written()+" (name varbinary(1024) PRIMARY KEY, value blob NOT NULL) ENGINE=InnoDB")
		return c.server, err
	})
	if err != nil {
		return "", driverutil.OpError("guard", backend, lease.Name, err)
	}
	g, err := NewGuard(l, l.store.db, nil)
	if err != nil {
		return "", err
	}
	err = g.Do(ctx, guard.Unnoticed(ctx, lease), func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT value FROM "+k.written()+" WHERE name = "+literal(lease.Name)).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = tx.ExecContext(ctx, "REPLACE INTO "+k.written()+" VALUES ("+literal(lease.Name)+", "+literal(value)+")")
		return err
	})
	return before, err
}
