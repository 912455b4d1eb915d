package integration

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // the database that is migrated
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gooselock"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

var _ interface {
	lock.Locker
	lock.SessionLocker
} = (*gooselock.Locker)(nil)

// createOnce creates a file, and reports false if it is there already.
func createOnce(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	return err == nil && f.Close() == nil
}

type migration = func(ctx context.Context, tx *sql.Tx) error

// instance is one instance of a program that migrates its database when it starts.
type instance struct {
	db       *sql.DB
	locker   *gooselock.Locker
	provider *goose.Provider
}

func newInstance(client *holdfast.Client, folder string, session bool, up migration) (*instance, error) {
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(filepath.Join(folder, "data.db"))+"?_busy_timeout=10000&_journal_mode=WAL")
	if err != nil {
		return nil, err
	}
	locker, err := gooselock.NewLocker(client, "migrations")
	if err != nil {
		return nil, err
	}
	option := goose.WithLocker(locker)
	if session {
		option = goose.WithSessionLocker(locker)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, nil, option, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{RunTx: up}, nil)))
	return &instance{db, locker, provider}, err
}

func (i *instance) up(ctx context.Context) error {
	ctx, stop := i.locker.Context(ctx)
	defer stop()
	_, err := i.provider.Up(ctx)
	return err
}

func createTable(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "CREATE TABLE accounts (id INTEGER PRIMARY KEY)")
	return err
}

// All instances migrate when they start. The migration runs once.
func TestGooseMigratesOnce(t *testing.T) {
	for name, session := range map[string]bool{"Locker": false, "SessionLocker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, folder, migrations := memory.NewStore(), t.TempDir(), &runs{}
			var instances sync.WaitGroup
			for range 3 {
				client := newClient(t, store)
				in, err := newInstance(client, folder, session, func(ctx context.Context, tx *sql.Tx) (err error) {
					migrations.run(func() { time.Sleep(50 * time.Millisecond); err = createTable(ctx, tx) })
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				defer in.db.Close()
				instances.Go(func() {
					if err := in.up(t.Context()); err != nil {
						t.Error(err)
					}
					if err := in.up(t.Context()); err != nil {
						t.Errorf("again: %v", err)
					}
				})
			}
			instances.Wait()
			if n := migrations.count(); n != 1 {
				t.Errorf("the migration ran %d times", n)
			}
		})
	}
}

// A migration whose lock is lost is rolled back, goose returns the loss, and another instance
// migrates.
func TestGooseLoss(t *testing.T) {
	store, folder, began := memory.NewStore(), t.TempDir(), make(chan struct{})
	in, err := newInstance(newClient(t, store), folder, false, func(ctx context.Context, tx *sql.Tx) error {
		if err := createTable(ctx, tx); err != nil {
			return err
		}
		close(began)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.db.Close()
	migrated := make(chan error, 1)
	go func() { migrated <- in.up(context.Background()) }()
	<-began
	operator := newClient(t, store)
	if err := operator.Break(t.Context(), "migrations", holdfast.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Up: %v", err)
	}
	next, err := newInstance(operator, folder, false, createTable) // would fail if the table were there
	if err != nil {
		t.Fatal(err)
	}
	defer next.db.Close()
	if err := next.up(t.Context()); err != nil {
		t.Errorf("the next instance: %v", err)
	}
}

// goose unlocks although the context of the migration was canceled.
func TestGooseCanceledMigration(t *testing.T) {
	store, folder := memory.NewStore(), t.TempDir()
	client := newClient(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	in, err := newInstance(client, folder, false, func(ctx context.Context, _ *sql.Tx) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.db.Close()
	if err := in.up(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Up: %v", err)
	}
	if !isFree(t, client, "migrations") {
		t.Error("the lock is still held")
	}
}

// gooseProgram migrates. The first migration takes forever.
func gooseProgram(client *holdfast.Client, journal journal) error {
	folder := filepath.Dir(journal.path)
	in, err := newInstance(client, folder, false, func(ctx context.Context, tx *sql.Tx) error {
		if err := journal.write(ctx, "migrate"); err != nil {
			return err
		}
		if createOnce(filepath.Join(folder, "begun")) {
			select {}
		}
		return createTable(ctx, tx)
	})
	if err != nil {
		return err
	}
	defer in.db.Close()
	if err := in.up(context.Background()); err != nil {
		return err
	}
	return journal.write(context.Background(), "migrated")
}

func TestGooseKilledProcess(t *testing.T) {
	t.Parallel()
	folder := takesOver(t, "goose")
	entries := journal{filepath.Join(folder, "journal")}.await(t, 3)
	if last := entries[len(entries)-1]; last.what != "migrated" || len(entries) != 3 {
		t.Errorf("what happened: %v", entries)
	}
}
