package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// guarded is a lock with a guard, and a table of the program.
type guarded struct {
	l     *Locker
	db    *sql.DB
	guard *Guard
	table string
}

func newGuarded(t testing.TB, options *sql.TxOptions) guarded {
	t.Helper()
	at := mysqltest.URL(t)
	g := guarded{l: openAt(t, at), db: pool(t, at)}
	_, name, _ := strings.Cut(at, "table=")
	g.table = name + "_work"
	run(t, g.db, "CREATE TABLE "+g.table+" (token bigint, note varchar(100)) ENGINE=InnoDB")
	var err error
	if g.guard, err = NewGuard(g.l, g.db, options); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g guarded) acquire(t testing.TB, id string) driver.Lease {
	t.Helper()
	lease, err := g.l.TryAcquire(t.Context(), request("job", id))
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// takeOver lets the lease of the present holder end, and grants the lock to another.
func (g guarded) takeOver(t *testing.T, lease driver.Lease, id string) driver.Lease {
	t.Helper()
	if err := g.l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return g.acquire(t, id)
}

func (g guarded) write(ctx context.Context, tx *sql.Tx, lease driver.Lease, note string) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d, '%s')", g.table, lease.Token, note))
	return err
}

func (g guarded) notes(t *testing.T) string {
	t.Helper()
	var notes sql.NullString
	if err := g.db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(note ORDER BY note) FROM "+g.table).Scan(&notes); err != nil {
		t.Fatal(err)
	}
	return notes.String
}

// A holder's transaction commits. That of a former holder is refused, and nothing of it stays.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, options := range []*sql.TxOptions{nil, {Isolation: sql.LevelReadCommitted}, {Isolation: sql.LevelSerializable}} {
		g := newGuarded(t, options)
		first := g.acquire(t, "a")
		do := func(lease driver.Lease, note string) error {
			return g.guard.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
				return g.write(ctx, tx, lease, note)
			})
		}
		if err := do(first, "first"); err != nil {
			t.Fatal(err)
		}
		second := g.takeOver(t, first, "b")
		if err := do(first, "late"); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a former holder: %v", err)
		}
		if err := do(second, "second"); err != nil {
			t.Error(err)
		}
		other := driver.Lease{Name: "other", Token: 1, ID: driver.NewLeaseID("x"), TTL: time.Minute}
		if err := do(other, "none"); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a lock without a row: %v", err)
		}
		if got := g.notes(t); got != "first,second" {
			t.Errorf("the table has %s", got)
		}
		var limit int
		if err := g.db.QueryRowContext(t.Context(), "SELECT @@session.wait_timeout").Scan(&limit); err != nil || limit < 3600 {
			t.Errorf("wait_timeout of the program's session is %d s, %v", limit, err)
		}
	}
}

// After the guard has been taken, renewals and releases go on, and so do grants of other locks. The next grant waits until the
// transaction has ended.
func TestGuardDelaysOnlyTheNextGrant(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	lease := g.acquire(t, "a")
	var others []driver.Lease
	for _, name := range []string{"a", "joa", "joc", "job2"} {
		other, err := g.l.TryAcquire(t.Context(), request(name, "x"))
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, other)
	}
	tx, err := g.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = g.write(t.Context(), tx, lease, "first")
	if err = errors.Join(err, g.guard.Check(t.Context(), tx, guard.Unnoticed(t.Context(), lease))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if lease, err = g.l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		if err := g.l.Release(t.Context(), other); err != nil {
			t.Error(err)
		}
		if _, err := g.l.TryAcquire(t.Context(), request(other.Name, "y")); err != nil {
			t.Error(err)
		}
	}
	for i := range 5 {
		if _, err := g.l.TryAcquire(t.Context(), request(fmt.Sprint("job-", i), "x")); err != nil {
			t.Error(err)
		}
	}
	if err := g.l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the guard has delayed what it must not: %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	if _, err := g.l.TryAcquire(ctx, request("job", "b")); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("the next grant: %v", err)
	}
	granted := make(chan driver.Lease, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() {
		lease, err := g.l.TryAcquire(t.Context(), request("job", "b")) // again, as a client does
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	})
	time.Sleep(300 * time.Millisecond)
	if len(granted) > 0 {
		t.Error("the lock was granted before the transaction has ended")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	waiter.Wait()
	if next := <-granted; next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
	if got := g.notes(t); got != "first" {
		t.Errorf("the table has %s", got)
	}
}

// A function that ends the transaction, fails or panics commits nothing more, and is reported.
func TestGuardsFunction(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	lease := g.acquire(t, "a")
	hold := guard.Unnoticed(t.Context(), lease)
	mine := errors.New("mine")
	for what, c := range map[string]struct {
		fn   func(ctx context.Context, tx *sql.Tx) error
		want error
	}{
		"an error": {func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(mine, g.write(ctx, tx, lease, "error"))
		}, mine},
		"a commit of its own": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "COMMIT")
			return errors.Join(err, g.write(ctx, tx, lease, "unguarded"))
		}, guard.ErrTransactionEnded},
		"the method Commit": {func(context.Context, *sql.Tx) error { return nil }, nil},
		"a table": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE "+g.table+"_more (a int)")
			return err
		}, guard.ErrTransactionEnded},
	} {
		if what == "the method Commit" {
			c.fn, c.want = func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, guard.ErrTransactionEnded
		}
		if err := g.guard.Do(t.Context(), hold, c.fn); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != "why" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = g.guard.Do(t.Context(), hold, func(ctx context.Context, tx *sql.Tx) error {
			if err := g.write(ctx, tx, lease, "panic"); err != nil {
				t.Error(err)
			}
			panic("why")
		})
	}()
	ended, end := context.WithCancelCause(t.Context())
	if err := g.guard.Do(t.Context(), guard.Unnoticed(ended, lease), func(ctx context.Context, tx *sql.Tx) error {
		err := g.write(ctx, tx, lease, "lost")
		end(driver.ErrLost)
		return err
	}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a hold that is lost meanwhile: %v", err)
	}
	if got := g.notes(t); got != "unguarded" {
		t.Errorf("the table has %s", got)
	}
	if err := g.guard.Do(t.Context(), guard.Unnoticed(ended, lease), func(context.Context, *sql.Tx) error {
		t.Error("the function runs after the end of the hold")
		return nil
	}); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
}

// A machine that dies after the guard was taken delays the next grant for some seconds only.
func TestGuardOfADeadMachine(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	l := openAt(t, at)
	proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
	through := pool(t, strings.Replace(at, mysqltest.Shared(t).Addr(), proxy.Addr(), 1))
	g, err := NewGuard(l, through, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := through.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.step(t.Context(), tx, boundIdle), g.lock(t.Context(), tx, lease)); err != nil { // as Do does
		t.Fatal(err)
	}
	proxy.Set(castest.Stall) // the server hears nothing more
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "the next grant waits for a dead machine", func() bool {
		next, err := l.TryAcquire(t.Context(), request("job", "b"))
		released(t, l, next, errors.Join(err, context.Canceled))
		return err == nil
	})
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the next grant has not waited for the transaction: %v", took)
	}
	proxy.Set(castest.Refuse)
	_ = tx.Rollback()
}

// When the answer to the commit is lost, the outcome is said to be unknown.
func TestGuardInDoubt(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	l := openAt(t, at)
	proxy := castest.NewProxy(t, mysqltest.Shared(t).Addr())
	through := pool(t, strings.Replace(at, mysqltest.Shared(t).Addr(), proxy.Addr(), 1))
	lease, err := l.TryAcquire(t.Context(), request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := through.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Set(castest.LoseAnswers)
	if err := outcome(tx.Commit()); !errors.Is(err, ErrInDoubt) {
		t.Errorf("%v, want in doubt", err)
	}
	released(t, l, lease, nil)
}

// Guarded transactions of competing holders, of which some are paused, commit in the order of their tokens.
func TestGuardOrder(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	run(t, g.db, "ALTER TABLE "+g.table+" ADD n bigint AUTO_INCREMENT PRIMARY KEY")
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			for n := 0; n < 15; n++ {
				req := request("job", fmt.Sprint(i, "-", n))
				req.TTL = time.Second
				lease, err := g.l.TryAcquire(t.Context(), req)
				if err != nil {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if n%3 == 0 { // its lease ends early, and it does not notice
					_ = g.l.Release(t.Context(), lease)
				}
				err = g.guard.Do(t.Context(), guard.Unnoticed(t.Context(), lease), func(ctx context.Context, tx *sql.Tx) error {
					var before int64
					if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(token), 0) FROM "+g.table).Scan(&before); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (token, note) VALUES (%d, '%d')", g.table, lease.Token, before))
					return err
				})
				if err != nil && !errors.Is(err, driver.ErrLost) && !hasCode(err, codeDeadlock, codeLockTimeout) {
					t.Error(err)
				}
				_ = g.l.Release(t.Context(), lease)
			}
		})
	}
	workers.Wait()
	rows, err := g.db.QueryContext(t.Context(), "SELECT token, CAST(note AS UNSIGNED) FROM "+g.table+" ORDER BY token")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	last, count := int64(0), 0
	for rows.Next() {
		var token, saw int64
		if err := rows.Scan(&token, &saw); err != nil {
			t.Fatal(err)
		}
		if saw != last {
			t.Errorf("the holder of token %d saw %d as the last one, and %d was written before", token, saw, last)
		}
		last = token
		count++
	}
	if err := rows.Err(); err != nil || count == 0 {
		t.Errorf("%d guarded writes, %v", count, err)
	}
}

func TestGuardsArguments(t *testing.T) {
	t.Parallel()
	at := mysqltest.URL(t)
	l, db := openAt(t, at), pool(t, at)
	reader := openAt(t, at, unprobed)
	for what, err := range map[string]error{
		"no database": second(NewGuard(l, nil, nil)),
		"no locks":    second(NewGuard(nil, db, nil)),
		"a reader":    second(NewGuard(reader, db, nil)),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	g, err := NewGuard(l, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// At every isolation level, and although the transaction has a snapshot already, the guard sees the present row: it passes after a
// renewal, and refuses after a grant.
func TestGuardSeesThePresentRow(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []string{"OFF", "ON"} { // MariaDB 11.6 has it on
		for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead,
			sql.LevelSerializable} {
			g := newGuarded(t, nil)
			lease := g.acquire(t, "a")
			conn, err := g.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			begin := func() *sql.Tx {
				t.Helper()
				_, err := conn.ExecContext(t.Context(), "SET SESSION innodb_snapshot_isolation = "+snapshot)
				if err != nil {
					t.Fatal(err)
				}
				tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				var n int
				if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+g.table).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return tx
			}
			what := fmt.Sprint(level, ", innodb_snapshot_isolation ", snapshot)
			tx := begin()
			if lease, err = g.l.Renew(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			if err := g.guard.Check(t.Context(), tx, guard.Unnoticed(t.Context(), lease)); err != nil {
				t.Errorf("%s: after a renewal: %v", what, err)
			}
			_ = tx.Rollback()
			tx = begin()
			g.takeOver(t, lease, "b")
			if err := g.guard.Check(t.Context(), tx, guard.Unnoticed(t.Context(), lease)); err == nil {
				t.Errorf("%s: a former holder passes", what)
			}
			_ = tx.Rollback()
			_ = conn.Close()
		}
	}
}
