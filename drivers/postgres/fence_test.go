package postgres

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

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
)

// holdOf is the hold of a lock that is elsewhere.
func (g *guardFixture) holdOf(token uint64) testHold {
	return testHold{lease: driver.Lease{Name: "job", Token: token}, ctx: g.t.Context()}
}

// newFenceFixture is a guard's fixture, whose do is that of a Fence.
func newFenceFixture(t *testing.T, driverName string, level pgx.TxIsoLevel) *guardFixture {
	t.Helper()
	g := newGuardFixture(t, driverName, level)
	g.exec(CreateFences)
	g.exec(CreateFences) // again
	g.exec(`DROP TABLE holdfast_locks`)
	switch k := g.guardKind.(type) {
	case pgxKind:
		fence, err := NewFence(g.db, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		g.guardKind = pgxFence{k, fence}
	case sqlKind:
		g.guardKind = sqlFence{k, &Fence[*sql.Tx]{k.guard.transactions}}
	}
	return g
}

type pgxFence struct {
	pgxKind
	fence *Fence[pgx.Tx]
}

func (f pgxFence) do(ctx context.Context, hold guard.Hold, fn func(context.Context, statement) error) error {
	return f.fence.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, pgxStatement(tx)) })
}

type sqlFence struct {
	sqlKind
	fence *Fence[*sql.Tx]
}

func (f sqlFence) do(ctx context.Context, hold guard.Hold, fn func(context.Context, statement) error) error {
	return f.fence.Do(ctx, hold, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlStatement(tx)) })
}

func eachFence(t *testing.T, test func(t *testing.T, g *guardFixture, level pgx.TxIsoLevel)) {
	for _, c := range combinations {
		t.Run(c.driverName+"/"+string(c.level), func(t *testing.T) {
			t.Parallel()
			test(t, newFenceFixture(t, c.driverName, c.level), c.level)
		})
	}
}

func TestFenceRefusesLowerTokens(t *testing.T) {
	t.Parallel()
	eachFence(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		for _, token := range []uint64{7, 7, 9} {
			if err := g.do(t.Context(), g.holdOf(token), note(fmt.Sprint(token))); err != nil {
				t.Fatal(err)
			}
		}
		err := g.do(t.Context(), g.holdOf(7), g.never)
		if !errors.Is(err, ErrFenced) || !errors.Is(err, driver.ErrLost) || !strings.HasPrefix(err.Error(), "holdfast: fence ") {
			t.Errorf("got %v, want ErrFenced", err)
		}
		failed := errors.New("mine")
		if err := g.do(t.Context(), g.holdOf(11), func(context.Context, statement) error { return failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
		if err := g.do(t.Context(), g.holdOf(9), g.never); !errors.Is(err, ErrFenced) { // the fence was raised all the same
			t.Errorf("after a later holder's transaction that failed: %v", err)
		}
		g.wantLines("7 7 9")
	})
}

// A later holder's raise waits for the transactions of earlier ones, and sees what they wrote. Those of one holder run side
// by side.
func TestFenceOrdersTransactions(t *testing.T) {
	t.Parallel()
	eachFence(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		if err := g.do(t.Context(), g.holdOf(7), note("first")); err != nil {
			t.Fatal(err)
		}
		var later sync.WaitGroup
		var ending atomic.Bool
		if err := g.do(t.Context(), g.holdOf(7), func(ctx context.Context, run statement) error {
			if err := g.do(ctx, g.holdOf(7), note("second")); err != nil {
				t.Errorf("the same holder's second transaction: %v", err)
			}
			later.Go(func() {
				var n int
				err := g.do(t.Context(), g.holdOf(8), func(ctx context.Context, run statement) error {
					return run(ctx, `SELECT count(*) FROM journal`, &n)
				})
				if err != nil || n != 3 || !ending.Load() {
					t.Errorf("the later holder sees %d lines, %v", n, err)
				}
			})
			g.waitBlocked()
			ending.Store(true)
			return note("third")(ctx, run)
		}); err != nil {
			t.Error(err)
		}
		later.Wait()
		g.wantLines("first second third")
	})
}

// Two holders that raise a fence for the first time: whatever the order, the fence ends with the greater token, and a
// refusal says why.
func TestFenceFirstRaises(t *testing.T) {
	t.Parallel()
	g := newFenceFixture(t, "pgx pool", pgx.ReadCommitted)
	for i := range 30 {
		name := fmt.Sprint("job", i)
		var all sync.WaitGroup
		for _, token := range []uint64{7, 7, 8, 8} {
			all.Go(func() {
				hold := g.holdOf(token)
				hold.lease.Name = name
				err := g.do(t.Context(), hold, func(context.Context, statement) error { return nil })
				if err != nil && (token == 8 || !errors.Is(err, ErrFenced)) {
					t.Errorf("token %d: %v", token, err)
				}
			})
		}
		all.Wait()
		var token int
		if err := g.db.QueryRow(t.Context(), `SELECT token FROM holdfast_fences WHERE name = $1`, name).Scan(&token); err != nil || token != 8 {
			t.Errorf("the fence has %d, %v", token, err)
		}
	}
}

func TestFenceInTheProgramsOwnTransaction(t *testing.T) {
	t.Parallel()
	g := newFenceFixture(t, "pgx pool", pgx.ReadCommitted)
	fence := g.guardKind.(pgxFence).fence
	check := func(token uint64, want error) {
		t.Helper()
		tx, err := g.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := fence.Check(t.Context(), tx, "job", token); !errors.Is(err, want) {
			t.Errorf("token %d: %v, want %v", token, err, want)
		}
		_ = tx.Rollback(t.Context())
	}
	for _, invalid := range []uint64{0, 1 << 63} {
		check(invalid, driver.ErrInvalid)
		if err := fence.Raise(t.Context(), "job", invalid); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("raised to %d: %v", invalid, err)
		}
	}
	check(5, errLowerFence)
	for _, token := range []uint64{5, 5, 6} {
		if err := fence.Raise(t.Context(), "job", token); err != nil {
			t.Error(err)
		}
		check(token, nil)
	}
	check(5, ErrFenced)
	if err := fence.Raise(t.Context(), "job", 5); !errors.Is(err, ErrFenced) {
		t.Error(err)
	}
	g.exec(`DROP TABLE holdfast_fences`)
	if err := g.do(t.Context(), g.holdOf(7), g.never); err == nil || !strings.Contains(err.Error(), "CreateFences") {
		t.Errorf("without the table: %v", err)
	}
	if _, err := NewFence(nil, pgx.TxOptions{}); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	if _, err := NewSQLFence(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

// An error of the function is no reason to run it again, also if it is that of a fence that was not raised.
func TestFenceRunsTheFunctionOnce(t *testing.T) {
	t.Parallel()
	g := newFenceFixture(t, "pgx pool", pgx.ReadCommitted)
	fence := g.guardKind.(pgxFence).fence
	if err := fence.Raise(t.Context(), "job", 7); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := fence.Do(t.Context(), g.holdOf(7), func(ctx context.Context, tx pgx.Tx) error {
		calls++
		return fence.Check(ctx, tx, "other", 1)
	})
	if calls != 1 || !errors.Is(err, errLowerFence) {
		t.Errorf("the function ran %d times, %v", calls, err)
	}
}

// Without the unique pair, a raise would not wait for transactions of the holder before. Such a table raises nothing.
func TestFenceNeedsTheKey(t *testing.T) {
	t.Parallel()
	eachFence(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		g.exec(`ALTER TABLE holdfast_fences DROP CONSTRAINT holdfast_fences_name_token_key`)
		err := g.do(t.Context(), g.holdOf(5), g.never)
		wantError(t, err, driver.ErrDamaged, "(name, token)", "CREATE UNIQUE INDEX")
		g.exec(`CREATE UNIQUE INDEX ON holdfast_fences (name, token) WHERE token > 0`)
		wantError(t, g.do(t.Context(), g.holdOf(5), g.never), driver.ErrDamaged, "(name, token)")
		g.exec(`CREATE UNIQUE INDEX key ON holdfast_fences (name, token)`)
		if err := g.do(t.Context(), g.holdOf(5), note("a")); err != nil {
			t.Error(err)
		}
		g.exec(`DROP INDEX key`) // the fence has the token already, so nothing raises it
		wantError(t, g.do(t.Context(), g.holdOf(5), g.never), driver.ErrDamaged, "(name, token)")
	})
}

// A raise waits for an earlier holder's transaction for longer than for its other statements.
func TestFenceWaitsForALongTransaction(t *testing.T) {
	t.Parallel()
	for _, driverName := range []string{"pgx pool", "pgx", "postgres"} {
		t.Run(driverName, func(t *testing.T) {
			t.Parallel()
			g := newFenceFixture(t, driverName, pgx.ReadCommitted)
			var next guardKind
			switch k := g.guardKind.(type) {
			case pgxFence:
				fence := *k.fence
				fence.stepLimit = 2 * time.Second
				next = pgxFence{k.pgxKind, &fence}
			case sqlFence:
				fence := *k.fence
				fence.stepLimit = 2 * time.Second
				next = sqlFence{k.sqlKind, &fence}
			}
			var later sync.WaitGroup
			if err := g.do(t.Context(), g.holdOf(7), func(ctx context.Context, run statement) error {
				later.Go(func() {
					if err := next.do(t.Context(), g.holdOf(8), note("later")); err != nil {
						t.Errorf("the next holder: %v", err)
					}
				})
				g.waitBlocked()
				time.Sleep(2500 * time.Millisecond)
				return note("earlier")(ctx, run)
			}); err != nil {
				t.Error(err)
			}
			later.Wait()
			g.wantLines("earlier later")
		})
	}
}
