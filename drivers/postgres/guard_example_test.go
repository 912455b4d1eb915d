package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// The holder's writes are in a transaction that commits only while no later holder exists.
func ExampleGuard() {
	ctx := context.Background()
	url, end := database()
	defer end()
	pool, err := pgxpool.New(ctx, url) // the program's own
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client, err := holdfast.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
	guard, err := postgres.NewGuard(client.Locker(), pool, pgx.TxOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE bills (amount int)`); err != nil {
		log.Fatal(err)
	}

	hold, err := client.Lock(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	bill := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO bills (amount) VALUES (120)`)
		return err
	}
	fmt.Println("while holding:", guard.Do(ctx, hold, bill))

	_ = hold.Release(ctx)
	err = guard.Do(ctx, hold, bill)
	fmt.Println("after the release, refused:", errors.Is(err, holdfast.ErrReleased))

	var bills int
	err = pool.QueryRow(ctx, `SELECT count(*) FROM bills`).Scan(&bills)
	fmt.Println("bills:", bills, err)

	// Output:
	// while holding: <nil>
	// after the release, refused: true
	// bills: 1 <nil>
}

// A program with transactions of its own checks in them, as late as it can.
func ExampleGuard_Check() {
	ctx := context.Background()
	url, end := database()
	defer end()
	db, err := sql.Open("pgx", url) // or another driver of PostgreSQL
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	client, err := holdfast.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
	guard, err := postgres.NewSQLGuard(client.Locker(), db, nil)
	if err != nil {
		log.Fatal(err)
	}
	hold, err := client.Lock(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	// … the program's statements …
	if err := guard.Check(ctx, tx, hold); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tx.Commit())

	// Output: <nil>
}

// The lock is elsewhere. The table of fences in the guarded database compares tokens.
func ExampleFence() {
	ctx := context.Background()
	url, end := database()
	defer end()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, postgres.CreateFences); err != nil { // once, in a migration
		log.Fatal(err)
	}
	fence, err := postgres.NewFence(pool, pgx.TxOptions{})
	if err != nil {
		log.Fatal(err)
	}

	write := func(token uint64) error { // the token comes from Hold.Token or TokenFromContext
		if err := fence.Raise(ctx, "reports", token); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return fence.Check(ctx, tx, "reports", token) // and then the program's statements
		})
	}
	fmt.Println("first holder:", write(41))
	fmt.Println("its successor:", write(42))
	fmt.Println("the first, after a pause, is refused:", errors.Is(write(41), postgres.ErrFenced))

	// Output:
	// first holder: <nil>
	// its successor: <nil>
	// the first, after a pause, is refused: true
}

// database returns the URL of a database of the tests' server, dropped at the end.
func database() (url string, end func()) {
	tb := &exampleTB{}
	url = postgrestest.URL(tb)
	return url, func() {
		for _, fn := range tb.cleanups {
			fn()
		}
	}
}

// exampleTB replaces the testing.TB, which examples do not have.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                   {}
func (*exampleTB) Context() context.Context  { return context.Background() }
func (tb *exampleTB) Cleanup(fn func())      { tb.cleanups = append(tb.cleanups, fn) }
func (*exampleTB) Error(args ...any)         { log.Fatal(args...) }
func (*exampleTB) Fatal(args ...any)         { log.Fatal(args...) }
func (*exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
