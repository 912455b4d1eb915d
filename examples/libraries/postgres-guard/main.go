// Postgres-guard posts entries to an account of PostgreSQL under a lock in the same database. Each entry is a transaction
// that commits only while no later holder exists: a holder that was stopped, and comes too late, writes nothing.
//
// Start it in two terminals, stop the one that posts with Ctrl-Z, wait until the other posts, and continue the first
// with fg:
//
//	cd examples/libraries/postgres-guard
//	go run . -url 'postgres://app@127.0.0.1/app'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/postgres"
)

func main() {
	url := flag.String("url", "postgres://app@127.0.0.1/app", "URL of the database; a password is better in PGPASSWORD")
	name := flag.String("name", defaultName(), "name of this instance")
	ttl := flag.Duration("ttl", 10*time.Second, "how long others wait for a holder that is stopped")
	think := flag.Duration("think", 2*time.Second, "time between the decision to post an entry and the write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := ledger{out: os.Stdout, name: *name, think: *think}
	if err := l.run(ctx, *url, *ttl); err != nil {
		log.Fatal(err)
	}
}

func defaultName() string {
	host, _ := os.Hostname()
	return host + "/" + strconv.Itoa(os.Getpid())
}

// ledger is one instance.
type ledger struct {
	out   io.Writer
	name  string
	think time.Duration
	pool  *pgxpool.Pool
	guard *postgres.Guard[pgx.Tx]
}

// run takes part until ctx ends.
func (l *ledger) run(ctx context.Context, url string, ttl time.Duration) (err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	l.pool = pool
	locker, err := postgres.New(ctx, pool)
	if err != nil {
		return err
	}
	client, err := holdfast.New(locker, holdfast.WithTTL(ttl), holdfast.WithOwner(l.name),
		holdfast.WithLogger(slog.New(slog.DiscardHandler))) // the screen belongs to the ledger
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ending))
	}()
	if l.guard, err = postgres.NewGuard(locker, pool, pgx.TxOptions{}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		hold, err := client.Lock(ctx, "ledger")
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		l.printf("holds the lock, token %d", hold.Token())
		err = l.post(hold)
		l.printf("no longer posts: %v", err)
		if err := hold.Release(context.WithoutCancel(ctx)); err != nil {
			l.printf("release: %v", err)
		}
	}
	return nil
}

// ignoreEnd is the error, unless the program was asked to end.
func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// post posts entries until the hold ends.
func (l *ledger) post(hold *holdfast.Hold) error {
	// Under the lock: two of these statements at a time can collide, and one fails.
	const table = `CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance bigint NOT NULL)`
	if _, err := l.pool.Exec(hold.Context(), table); err != nil {
		return err
	}
	for {
		balance := 0
		err := l.guard.Do(hold.Context(), hold, func(ctx context.Context, tx pgx.Tx) error {
			l.printf("decides to post 10")
			// A process can be stopped at any moment: here, between the decision and the write, it is most likely. So that the
			// screen shows what the guard is for, this program does not look at ctx.
			time.Sleep(l.think)
			return tx.QueryRow(context.WithoutCancel(ctx), `INSERT INTO accounts AS a VALUES ('alice', 10)
				ON CONFLICT (name) DO UPDATE SET balance = a.balance + 10 RETURNING balance`).Scan(&balance)
		})
		switch {
		case errors.Is(err, postgres.ErrInDoubt):
			l.printf("IN DOUBT: the entry was written as a whole or not at all: %v", err)
			return err
		case err != nil:
			l.printf("REFUSED: the entry was not written")
			return err
		}
		l.printf("has posted 10 under token %d: balance %d", hold.Token(), balance)
	}
}

func (l *ledger) printf(format string, args ...any) {
	fmt.Fprintf(l.out, "%s %s %s\n", time.Now().Format(time.TimeOnly), l.name, fmt.Sprintf(format, args...))
}
