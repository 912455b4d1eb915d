package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// One write of several with a condition is done, whichever rows the client counts. An edit by hand is not overwritten.
func TestPut(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	config := storeAt(t, at).config
	for _, found := range []bool{false, true} {
		s := &store{config: config, db: pool(t, at, func(c *gomysql.Config) { c.ClientFoundRows = found })}
		key := fmt.Sprint("key-", found)
		first, err := s.Put(t.Context(), key, []byte("first"), "")
		if err != nil || first.Version == "" || first.Now.IsZero() {
			t.Fatalf("%+v, %v", first, err)
		}
		for _, version := range []string{"", "other", "' OR '1' = '1", versionOf([]byte("other"))} {
			if _, err := s.Put(t.Context(), key, []byte("second"), version); !errors.Is(err, cas.ErrConflict) {
				t.Errorf("version %q: %v", version, err)
			}
		}
		if _, err := s.Put(t.Context(), "missing", []byte("second"), first.Version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("a version of a key without a value: %v", err)
		}
		if v, err := s.Get(t.Context(), "missing"); err != nil || v.Version != "" || v.Now.IsZero() {
			t.Errorf("%+v, %v, want no value, and the time", v, err)
		}
		second, err := s.Put(t.Context(), key, []byte("second"), first.Version)
		if err != nil || second.Version == first.Version || second.Now.Before(first.Now) {
			t.Errorf("%+v, %v", second, err)
		}
		v, err := s.Get(t.Context(), key)
		if err != nil || string(v.Data) != "second" || v.Version != second.Version || v.Now.Before(second.Now) {
			t.Errorf("%+v, %v", v, err)
		}
		run(t, s.db, "UPDATE "+s.server.Load().table+" SET value = 'by hand' WHERE name = '"+key+"'")
		if _, err := s.Put(t.Context(), key, []byte("third"), second.Version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("a write over an edit by hand: %v", err)
		}
	}
}

// Many writes with one version race: one is done.
func TestOneWinner(t *testing.T) {
	t.Parallel()
	s := storeAt(t, mysqltest.URL(t))
	version := ""
	for round := range 20 {
		var wins atomic.Int64
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				_, err := s.Put(t.Context(), "raced", []byte(fmt.Sprint(round, " ", i)), version)
				if err == nil {
					wins.Add(1)
				} else if !errors.Is(err, cas.ErrConflict) {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		v, err := s.Get(t.Context(), "raced")
		if err != nil || wins.Load() != 1 || v.Version == version {
			t.Fatalf("%d writes were done, %v", wins.Load(), err)
		}
		version = v.Version
	}
}

// A list has several pages, and only its prefix. A batch has the values in the order of its keys.
func TestListAndBatch(t *testing.T) {
	t.Parallel()
	s := storeAt(t, mysqltest.URL(t))
	var keys []string
	for i := range 2*listPage + 5 {
		keys = append(keys, fmt.Sprintf("a%04d", i))
	}
	for _, key := range append([]string{"Z", "a", "b", "~x"}, keys...) {
		if _, err := s.Put(t.Context(), key, []byte("value of "+key), ""); err != nil {
			t.Fatal(err)
		}
	}
	pages, page := 0, ""
	var listed []string
	for first := true; first || page != ""; first = false {
		items, next, err := s.List(t.Context(), "a", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			listed = append(listed, item.Key)
			if string(item.Data) != "value of "+item.Key || item.Version != versionOf(item.Data) || item.Now.IsZero() {
				t.Fatalf("%+v", item)
			}
		}
		page = next
		pages++
	}
	if pages != 3 || strings.Join(listed, " ") != "a "+strings.Join(keys, " ") {
		t.Errorf("%d pages, %d keys", pages, len(listed))
	}
	values, err := s.GetBatch(t.Context(), []string{"b", "missing", "a"})
	if err != nil || string(values[0].Data) != "value of b" || values[1].Version != "" || values[1].Now.IsZero() ||
		string(values[2].Data) != "value of a" {
		t.Errorf("%+v, %v", values, err)
	}
	if items, next, err := s.List(t.Context(), "none", ""); err != nil || next != "" || len(items) != 0 {
		t.Errorf("%v, %q, %v", items, next, err)
	}
}

// The server's time goes on while local time goes back in autumn.
func TestTimeZone(t *testing.T) {
	t.Parallel()
	clock, err := serverprocess.NewClock(t.TempDir())
	if err != nil {
		t.Skip(err)
	}
	change := time.Date(2025, time.October, 26, 1, 0, 0, 0, time.UTC) // 3:00 in Berlin becomes 2:00
	if err := clock.Set(time.Until(change.Add(-time.Minute))); err != nil {
		t.Fatal(err)
	}
	server := mysqltest.Start(t, mysqltest.Options{Clock: clock, Env: []string{"TZ=Europe/Berlin"}})
	s := storeAt(t, server.URL())
	read := func() time.Time {
		t.Helper()
		version := ""
		before, err := s.Get(t.Context(), "key")
		if err == nil {
			version = before.Version
		}
		done, failed := s.Put(t.Context(), "key", []byte(time.Now().String()), version)
		if err := errors.Join(err, failed); err != nil || done.Now.Before(before.Now) {
			t.Fatal(before.Now, done.Now, err)
		}
		return done.Now
	}
	before := read()
	if d := before.Sub(change); d < -time.Minute || d > -time.Second {
		t.Errorf("the server's clock is %v after the change", d)
	}
	if err := clock.Set(time.Until(change.Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	var local string
	err = s.db.QueryRowContext(t.Context(), "SELECT CONCAT(@@time_zone, NOW())").Scan(&local)
	if err != nil || !strings.Contains(local, " 02:0") {
		t.Errorf("local time is %s, %v", local, err)
	}
	if after := read(); after.Sub(before) < time.Minute || after.Sub(before) > 3*time.Minute {
		t.Errorf("the time went from %v to %v", before, after)
	}
}

// While another transaction has locked a row, calls end in time, and what is done late changes nothing.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	l := openAt(t, mysqltest.URL(t), WithCommandTimeout(500*time.Millisecond))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := l.store.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM "+tableOf(l)+" WHERE name = 'n' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = l.Renew(t.Context(), lease)
	if took := time.Since(began); err == nil || driver.OutcomeKnown(err) || took > 20*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Owner != "owner a" {
		t.Errorf("a read waits, too: %v, %v", r, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	released(t, l, lease, err)
}

// The requests of each call, as the page has them.
func TestRequests(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	at := mysqltest.URL(t)
	openAt(t, at)
	l := openAt(t, at, unprobed, func(c *config) { c.sent = func() { sent.Add(1) } })
	count := func(what string, want int64, call func() error) {
		t.Helper()
		before := sent.Load()
		if err := call(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := sent.Load() - before; n != want {
			t.Errorf("%s: %d statements, want %d", what, n, want)
		}
	}
	var lease driver.Lease
	acquire := func() (err error) { lease, err = l.TryAcquire(t.Context(), request("n", "a")); return err }
	count("first acquire", 2, acquire)
	count("refused", 1, func() error {
		if _, err := l.TryAcquire(t.Context(), request("n", "b")); !errors.Is(err, driver.ErrHeld) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	count("renew", 1, func() (err error) { lease, err = l.Renew(t.Context(), lease); return err })
	count("release", 1, func() error { return l.Release(t.Context(), lease) })
	count("acquire", 2, acquire)
	count("inspect", 1, func() error { _, err := l.Inspect(t.Context(), "n"); return err })
	count("batch", 1, func() error {
		_, errs := l.InspectBatch(t.Context(), "", []string{"n", "m", "o"})
		return errors.Join(errs...)
	})
	count("list", 1, func() error {
		for _, err := range l.List(t.Context(), "") {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A call ends with its context, although the server does not answer, and so does Close.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
	l, err := Open(t.Context(), mysqltest.WithTable(mysqltest.At(proxy.Addr())), WithCommandTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Set(castest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	if _, err := l.TryAcquire(ctx, request("n", "a")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	proxy.Cut()                                                             // the next call has to connect
	limited, stop := context.WithTimeout(t.Context(), 200*time.Millisecond) // while the server does not greet
	defer stop()
	if _, err := l.TryAcquire(limited, request("n", "b")); !errors.Is(err, context.DeadlineExceeded) || !driver.NotSent(err) {
		t.Errorf("%v, not sent: %v", err, driver.NotSent(err))
	}
	closing, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_ = l.Close(closing)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// Through a network that loses, delays and doubles, every call is true or unknown, and two clients never hold one lock.
func TestFaultyNetwork(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
	at := mysqltest.WithTable(mysqltest.At(proxy.Addr()))
	openAt(t, at)
	ctx, stop := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			proxy.Set([]castest.Mode{castest.LoseAnswers, castest.Pass, castest.Double, castest.Stall, castest.Pass, castest.Refuse}[i%6])
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		proxy.Set(castest.Pass)
	})
	var holder atomic.Int64
	var last atomic.Uint64
	var clients sync.WaitGroup
	grants := atomic.Int64{}
	for i := range 4 {
		clients.Go(func() {
			mine, err := Open(t.Context(), at, WithCommandTimeout(300*time.Millisecond), unprobed)
			if err != nil {
				t.Error(err)
				return
			}
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
				req := request("n", fmt.Sprint(i, "-", time.Now().UnixNano()))
				req.TTL = 10 * time.Second
				lease, err := mine.TryAcquire(t.Context(), req)
				if err != nil {
					if !errors.Is(err, driver.ErrHeld) { // it may be held without an answer
						_ = mine.Release(t.Context(), driver.Lease{Name: "n", ID: req.ID})
					}
					continue
				}
				grants.Add(1)
				if !holder.CompareAndSwap(0, int64(i+1)) {
					t.Errorf("two holders: %d and %d", holder.Load(), i+1)
				}
				if before := last.Swap(lease.Token); lease.Token <= before {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				holder.Store(0)
				for mine.Release(t.Context(), lease) != nil && t.Context().Err() == nil {
				}
			}
			_ = mine.Close(context.WithoutCancel(t.Context()))
		})
	}
	clients.Wait()
	stop()
	faults.Wait()
	if grants.Load() == 0 {
		t.Error("nobody was granted the lock")
	}
}

// A program's own pool is used, and not closed.
func TestNew(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	db := pool(t, at)
	table := at[strings.Index(at, "table=")+len("table="):]
	l, err := New(t.Context(), db, WithTable("", table))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		err = errors.Join(l.Release(t.Context(), lease), l.Close(t.Context()))
	}
	if err != nil {
		t.Error(err)
	}
	var n int
	err = db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE name = '"+lockrecord.Key("n")+"'").Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := New(t.Context(), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	without := pool(t, at, func(c *gomysql.Config) { c.DBName = "" })
	if _, err := New(t.Context(), without); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "WithTable") {
		t.Errorf("a pool without a database: %v", err)
	}
	if l, err := New(t.Context(), without, WithTable(mysqltest.Database, table)); err != nil {
		t.Error(err)
	} else if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, o := range []Option{nil, WithTable("", ""), WithTable("", "Upper"), WithTable("a`b", "a"), WithTable("", "a.b"),
		WithCommandTimeout(time.Millisecond), WithCommandTimeout(time.Hour), WithHistory(33), WithLogger(nil)} {
		if _, err := New(t.Context(), db, o); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	}
}

// A program's pool in which nothing is free delays calls, which end in time.
func TestPoolWithoutConnections(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	openAt(t, at)
	db := pool(t, at)
	db.SetMaxOpenConns(1)
	l, err := New(t.Context(), db, WithTable("", at[strings.Index(at, "table=")+len("table="):]))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	var taken *sql.Conn
	if taken, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := l.TryAcquire(ctx, request("n", "a")); !errors.Is(err, context.DeadlineExceeded) || !driver.NotSent(err) {
		t.Errorf("%v, not sent: %v", err, driver.NotSent(err))
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("n", "b"))
	released(t, l, lease, err)
}
