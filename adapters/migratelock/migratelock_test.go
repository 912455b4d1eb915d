package migratelock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/migratelock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// database stands for database.Driver, so that these tests need no other module.
type database interface{ migratelock.Driver[database] }

// calls is a database that writes down what is called.
type calls struct{ log []string }

func (c *calls) add(format string, args ...any) error {
	c.log = append(c.log, fmt.Sprintf(format, args...))
	return nil
}
func (c *calls) Open(url string) (database, error) { return c, c.add("open %s", url) }
func (c *calls) Close() error                      { return c.add("close") }
func (c *calls) Lock() error                       { return c.add("lock") }
func (c *calls) Unlock() error                     { return c.add("unlock") }
func (c *calls) Drop() error                       { return c.add("drop") }
func (c *calls) SetVersion(version int, dirty bool) error {
	return c.add("version %d %t", version, dirty)
}
func (c *calls) Version() (int, bool, error) { return 7, true, c.add("version?") }
func (c *calls) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	return errors.Join(err, c.add("run %s", text))
}

func newClient(t *testing.T, store *memory.Store) *holdfast.Client {
	t.Helper()
	return locktest.NewClient(t, store.Locker(), holdfast.WithTTL(10*time.Second))
}

func newLocked(t *testing.T, client *holdfast.Client) (*migratelock.Locked[database], *calls) {
	t.Helper()
	db := &calls{}
	locked, err := migratelock.New[database](client, "migrations", db, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return locked, db
}

func TestInvalidArguments(t *testing.T) {
	client := newClient(t, memory.NewStore())
	for what, create := range map[string]func() (*migratelock.Locked[database], error){
		"nil client":   func() (*migratelock.Locked[database], error) { return migratelock.New[database](nil, "m", &calls{}, 1) },
		"nil database": func() (*migratelock.Locked[database], error) { return migratelock.New[database](client, "m", nil, 1) },
		"no wait": func() (*migratelock.Locked[database], error) {
			return migratelock.New[database](client, "m", &calls{}, 0)
		},
		"no name": func() (*migratelock.Locked[database], error) {
			return migratelock.New[database](client, "", &calls{}, 1)
		},
	} {
		if _, err := create(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Everything but Lock and Unlock reaches the database.
func TestPassesOn(t *testing.T) {
	locked, db := newLocked(t, newClient(t, memory.NewStore()))
	opened, err := locked.Open("url")
	if _, ok := opened.(*migratelock.Locked[database]); !ok || err != nil {
		t.Errorf("Open: %T, %v", opened, err)
	}
	err = errors.Join(opened.Lock(), opened.SetVersion(1, true), opened.Run(strings.NewReader("sql")), opened.SetVersion(1, false),
		opened.Drop(), opened.Unlock())
	if version, dirty, versionErr := opened.Version(); version != 7 || !dirty || errors.Join(err, versionErr, opened.Close()) != nil {
		t.Errorf("Version: %d, %t; %v", version, dirty, errors.Join(err, versionErr))
	}
	if got, want := strings.Join(db.log, ", "), "open url, version 1 true, run sql, version 1 false, drop, version?, close"; got != want {
		t.Errorf("the database was called with %s; want %s", got, want)
	}
}

func TestLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, _ := newLocked(t, newClient(t, store))
		second, _ := newLocked(t, newClient(t, store))
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.Lock(); !errors.Is(err, holdfast.ErrHeld) || time.Since(began).Round(time.Second) != time.Minute {
			t.Errorf("Lock of the second instance: %v after %v", err, time.Since(began))
		}
		time.AfterFunc(30*time.Second, func() { _ = first.Close() }) // also releases
		if err := second.Lock(); err != nil {
			t.Error(err)
		}
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Databases from Open have one lock, and each keeps its own hold of it: what one does not have, it
// does not release.
func TestOpenHasItsOwnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, _ := newLocked(t, newClient(t, store))
		second, err := first.Open("url")
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := newClient(t, store)
		wantHeld := func(when string) {
			t.Helper()
			if _, err := elsewhere.TryLock(t.Context(), "migrations"); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("%s: another instance: %v", when, err)
			}
		}
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := second.Unlock(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Unlock of the other database's lock: %v", err)
		}
		wantHeld("after the other database's Unlock")
		if err := second.Lock(); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Lock of the other database: %v", err)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		wantHeld("after the other database's Close")
		if err := errors.Join(first.Unlock(), first.Lock(), first.Close()); err != nil {
			t.Error(err)
		}
		if _, err := elsewhere.TryLock(t.Context(), "migrations"); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Close ends a Lock that waits, also one that golang-migrate has given up: nobody would release it.
func TestCloseEndsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		holder, _ := newLocked(t, newClient(t, store))
		client := newClient(t, store)
		waiting, _ := newLocked(t, client)
		if err := holder.Lock(); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- waiting.Lock() }()
		time.Sleep(time.Second)
		if err := waiting.Close(); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Lock that waited: %v", err)
		}
		if err := waiting.Lock(); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock after Close: %v", err)
		}
		if err := errors.Join(holder.Unlock(), client.Shutdown(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// After a loss nothing new begins, but what was done is recorded.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locked, db := newLocked(t, newClient(t, store))
		if err := errors.Join(locked.Lock(), locked.SetVersion(1, true), locked.Run(strings.NewReader("sql")),
			newClient(t, store).Break(t.Context(), "migrations", driver.BreakAnybody())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := locked.SetVersion(1, false); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{"Run": locked.Run(strings.NewReader("more")), "SetVersion": locked.SetVersion(2, true),
			"Drop": locked.Drop()} {
			if !errors.Is(err, holdfast.ErrLost) || strings.Contains(err.Error(), "dirty") {
				t.Errorf("%s after the loss: %v", what, err)
			}
		}
		if err := locked.Unlock(); err != nil { // or golang-migrate believes forever that it has the lock
			t.Errorf("Unlock after the loss was returned: %v", err)
		}
		if got, want := strings.Join(db.log, ", "), "version 1 true, run sql, version 1 false"; got != want {
			t.Errorf("the database was called with %s; want %s", got, want)
		}
	})
}

// A migration that was recorded as dirty and then lost its lock does not run: another instance may be at it. The error says so, because
// whoever only sees that the database is dirty believes that a part of the migration has run, and would skip it.
func TestLossBeforeRun(t *testing.T) {
	for what, to := range map[string]int{"up": 2, "down": -1} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { lossBeforeRun(t, to) }) })
	}
}

func lossBeforeRun(t *testing.T, to int) {
	store := memory.NewStore()
	locked, db := newLocked(t, newClient(t, store))
	if err := errors.Join(locked.Lock(), locked.SetVersion(1, true), locked.Run(strings.NewReader("sql")), locked.SetVersion(1, false),
		locked.SetVersion(to, true)); err != nil {
		t.Fatal(err)
	}
	store.Remove("migrations")
	time.Sleep(time.Minute)
	err := locked.Run(strings.NewReader("sql"))
	const want = "; the database is marked as dirty, and this instance has not run the migration: unless another has, force version 1"
	if !errors.Is(err, holdfast.ErrLost) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Run: %v; want …%s", err, want)
	}
	if err := locked.Unlock(); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(db.log, ", "), fmt.Sprintf("version 1 true, run sql, version 1 false, version %d true", to); got != want {
		t.Errorf("the database was called with %s; want %s", got, want)
	}
}

// A loss that no other method has returned is an error of Unlock.
func TestLossInTheLastMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locked, _ := newLocked(t, newClient(t, store))
		for range 2 { // the second time after a loss that was returned
			if err := locked.Lock(); err != nil {
				t.Fatal(err)
			}
			store.Remove("migrations")
			time.Sleep(time.Minute)
			if err := locked.Unlock(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Unlock after the loss: %v", err)
			}
			if err := locked.Lock(); err != nil {
				t.Fatal(err)
			}
			store.Remove("migrations")
			time.Sleep(time.Minute)
			if err := errors.Join(locked.Drop(), locked.Unlock()); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Drop: %v", err)
			}
		}
	})
}

func ExampleNew() {
	client, err := holdfast.Open(context.Background(), "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	db := &calls{} // sqlite3.WithInstance(db, &sqlite3.Config{}) in production
	locked, err := migratelock.New[database](client, "migrations", db, 10*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	// What golang-migrate does:
	err = errors.Join(locked.Lock(), locked.SetVersion(1, true), locked.Run(strings.NewReader("CREATE TABLE t (id int)")),
		locked.SetVersion(1, false), locked.Unlock())
	fmt.Println(err, len(db.log))
	_ = client.Shutdown(context.Background())
	// Output: <nil> 3
}
