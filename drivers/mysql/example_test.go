package mysql_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mysql"
)

// A program that has a database already keeps its locks there.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:password@tcp(db1:3306)/app")
	if err != nil {
		log.Fatal(err)
	}
	locker, err := mysql.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Do(ctx, "nightly-report", func(ctx context.Context) error {
		return nil // the work, which ends when ctx ends
	}); err != nil {
		log.Print(err)
	}
}

// What a holder writes is refused once a later holder exists, although the process was paused and has not noticed.
func ExampleGuard() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:password@tcp(db1:3306)/app")
	if err != nil {
		log.Fatal(err)
	}
	locker, err := mysql.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := mysql.NewGuard(locker, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	hold, err := client.Lock(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)
	if err := guard.Do(ctx, hold, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE invoices SET sent = 1 WHERE sent = 0")
		return err
	}); err != nil {
		log.Print(err)
	}
}
