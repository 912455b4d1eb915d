package integration

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite3"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/migratelock"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

var _ database.Driver = (*migratelock.Locked[database.Driver])(nil)

// migrations are two files. The second needs the first.
var migrations = fstest.MapFS{
	"1_accounts.up.sql": {Data: []byte("CREATE TABLE accounts (id INTEGER PRIMARY KEY)")},
	"2_name.up.sql":     {Data: []byte("ALTER TABLE accounts ADD COLUMN name TEXT")},
}

// hooked is a driver that calls a function before each migration.
type hooked struct {
	database.Driver
	before func(sql string) error
}

func (h hooked) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	if err := h.before(string(text)); err != nil {
		return err
	}
	return h.Driver.Run(strings.NewReader(string(text)))
}

// newMigrate makes what one instance of a program has.
func newMigrate(client *holdfast.Client, folder string, before func(sql string) error) (*migrate.Migrate, error) {
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(filepath.Join(folder, "data.db"))+"?_busy_timeout=10000&_journal_mode=WAL")
	if err != nil {
		return nil, err
	}
	inner, err := sqlite3.WithInstance(db, &sqlite3.Config{})
	if err != nil {
		return nil, err
	}
	locked, err := migratelock.New[database.Driver](client, "migrations", hooked{inner, before}, time.Minute)
	if err != nil {
		return nil, err
	}
	source, err := iofs.New(migrations, ".")
	if err != nil {
		return nil, err
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite3", locked)
	if err != nil {
		return nil, err
	}
	m.LockTimeout = 2 * time.Minute
	return m, nil
}

func closeMigrate(t *testing.T, m *migrate.Migrate) {
	t.Helper()
	source, database := m.Close()
	if err := errors.Join(source, database); err != nil {
		t.Error(err)
	}
}

// All instances migrate when they start. Each migration runs once.
func TestMigrateOnce(t *testing.T) {
	store, folder, ran := memory.NewStore(), t.TempDir(), &runs{}
	var instances sync.WaitGroup
	for range 3 {
		m, err := newMigrate(newClient(t, store), folder,
			func(string) error { ran.run(func() { time.Sleep(50 * time.Millisecond) }); return nil })
		if err != nil {
			t.Fatal(err)
		}
		instances.Go(func() {
			defer closeMigrate(t, m)
			if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Error(err)
			}
			if version, dirty, err := m.Version(); version != 2 || dirty || err != nil {
				t.Errorf("version %d, dirty %t, %v", version, dirty, err)
			}
		})
	}
	instances.Wait()
	if ran.count() != 2 || ran.overlapped() {
		t.Errorf("%d migrations ran; two at once: %t", ran.count(), ran.overlapped())
	}
}

// After a loss the running migration is finished and recorded, and no other begins.
func TestMigrateLoss(t *testing.T) {
	store, ran := memory.NewStore(), 0
	client, operator := newClient(t, store), newClient(t, store)
	m, err := newMigrate(client, t.TempDir(), func(string) error {
		ran++
		if err := operator.Break(t.Context(), "migrations", holdfast.BreakAnybody()); err != nil {
			return err
		}
		eventually(t, "the loss", func() bool { return isFree(t, operator, "migrations") })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeMigrate(t, m)
	if err := m.Up(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Up: %v", err)
	}
	if version, dirty, err := m.Version(); ran != 1 || version != 1 || dirty || err != nil {
		t.Errorf("%d migrations began; version %d, dirty %t, %v", ran, version, dirty, err)
	}
	// The loss was returned once; the Migrate is not locked by it.
	if err := m.Up(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Up of the second migration, whose lock is lost, too: %v", err)
	}
}

// migrateProgram migrates. The first migration of all takes forever. After the crash the
// database is dirty, as golang-migrate marks it; the operator's part is done here.
func migrateProgram(client *holdfast.Client, journal journal) error {
	folder := filepath.Dir(journal.path)
	m, err := newMigrate(client, folder, func(string) error {
		if err := journal.write(context.Background(), "migrate"); err != nil {
			return err
		}
		if createOnce(filepath.Join(folder, "began")) {
			select {}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = m.Up()
	var dirty migrate.ErrDirty
	if errors.As(err, &dirty) {
		if err := m.Force(database.NilVersion); err != nil {
			return err
		}
		err = m.Up()
	}
	if err != nil {
		return err
	}
	return journal.write(context.Background(), "migrated")
}

func TestMigrateKilledProcess(t *testing.T) {
	t.Parallel()
	folder := takesOver(t, "migrate")
	entries := journal{filepath.Join(folder, "journal")}.await(t, 4) // the crash, two migrations, the end
	if last := entries[len(entries)-1]; last.what != "migrated" || len(entries) != 4 {
		t.Errorf("what happened: %v", entries)
	}
}
