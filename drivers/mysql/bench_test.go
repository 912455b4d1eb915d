package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

func BenchmarkCalls(b *testing.B) {
	at := mysqltest.URL(b)
	l, bare := openAt(b, at), pool(b, at)
	run(b, bare, fmt.Sprint("INSERT INTO ", tableOf(l), " VALUES ('~bare', 0, 0, '0')"))
	stores.Calls(b, l, func(i int) error {
		_, err := bare.ExecContext(b.Context(), fmt.Sprintf("UPDATE %s SET value = '%d' WHERE name = '~bare' AND value IS NOT NULL",
			tableOf(l), i))
		return err
	})
}

func BenchmarkHandover(b *testing.B) {
	at := mysqltest.URL(b)
	openAt(b, at) // makes the table
	stores.Handover(b, func(sent func()) (*Locker, error) {
		l, err := Open(b.Context(), at, unprobed, func(c *config) { c.sent = sent })
		if err == nil {
			l.store.db.SetMaxOpenConns(2)
		}
		return l, err
	})
}

// What a guard adds to a transaction of one statement. It is to be run with -benchtime 1x.
func BenchmarkGuard(b *testing.B) {
	g := newGuarded(b, nil)
	lease := g.acquire(b, "a")
	for b.Loop() {
		ratio.Run(b, 1000, func(int) error {
			tx, err := g.db.BeginTx(b.Context(), nil)
			if err != nil {
				return err
			}
			return errors.Join(g.write(b.Context(), tx, lease, "bare"), tx.Commit())
		}, func(int) error {
			return g.guard.Do(b.Context(), guard.Unnoticed(b.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
				return g.write(ctx, tx, lease, "guarded")
			})
		}).Report(b)
	}
}
