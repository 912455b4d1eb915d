package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A transaction that is guarded delays the next grant until its end, and nothing else. The next
// holder sees all that it wrote.
func TestGuardDelaysTheNextGrantAlone(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, _ pgx.TxIsoLevel) {
		a := g.hold("secret a")
		run, check, commit, rollback := g.begin(t.Context())
		defer func() { _ = rollback() }()
		if err := check(a); err != nil {
			t.Fatal(err)
		}
		if err := note("a")(t.Context(), run); err != nil {
			t.Fatal(err)
		}

		quick, cancel := context.WithTimeout(t.Context(), 20*time.Second) // nothing would end the transaction
		defer cancel()
		for range 5 {
			if _, err := g.locker.Renew(quick, a.lease); err != nil {
				t.Errorf("renewal: %v", err)
			}
		}
		var held *driver.HeldError
		waiter := driver.Request{Name: "job", ID: driver.NewLeaseID("waiter"), Waiter: "waiter", QueueFor: time.Minute, TTL: time.Minute}
		if _, err := g.locker.TryAcquire(quick, waiter); !errors.As(err, &held) {
			t.Errorf("entering the queue: %v", err)
		}
		if err := g.locker.Release(quick, a.lease); err != nil {
			t.Errorf("release: %v", err)
		}

		var committed atomic.Bool
		var next sync.WaitGroup
		next.Go(func() {
			lease, err := g.locker.TryAcquire(t.Context(), waiter)
			if err != nil || !committed.Load() {
				t.Errorf("the next grant: %v, after the commit: %t", err, committed.Load())
			}
			if err := g.do(t.Context(), testHold{lease: lease, ctx: t.Context()}, func(ctx context.Context, run statement) error {
				var n int
				if err := run(ctx, `SELECT count(*) FROM journal`, &n); err != nil || n != 1 {
					t.Errorf("the next holder sees %d lines, %v", n, err)
				}
				return note("b")(ctx, run)
			}); err != nil {
				t.Errorf("the next holder: %v", err)
			}
		})
		g.waitBlocked()
		committed.Store(true)
		if err := commit(); err != nil {
			t.Error(err)
		}
		next.Wait()
		g.wantLines("a b")
	})
}

// A function that still runs does not delay the next holder, whose whole guarded transaction comes first. The
// earlier holder's is refused. Renewals are no conflict.
func TestGuardFunctionDelaysNobody(t *testing.T) {
	t.Parallel()
	eachGuard(t, func(t *testing.T, g *guardFixture, level pgx.TxIsoLevel) {
		a := g.hold("secret a")
		renewed := func(ctx context.Context, run statement) error {
			if _, err := g.locker.Renew(ctx, a.lease); err != nil {
				t.Errorf("renewal: %v", err)
			}
			return note("renewed")(ctx, run)
		}
		if err := g.do(t.Context(), a, renewed); err != nil {
			t.Errorf("with a renewal: %v", err)
		}
		err := g.do(t.Context(), a, func(ctx context.Context, run statement) error {
			if err := note("a")(ctx, run); err != nil {
				return err
			}
			b := g.follow(a, "secret b")
			if err := g.do(ctx, b, note("b")); err != nil {
				t.Errorf("the next holder: %v", err)
			}
			return nil
		})
		if level == pgx.ReadCommitted {
			g.wantErr(err, driver.ErrLost)
		} else if sqlState(err) != "40001" {
			t.Errorf("with a snapshot: %v, want 40001", err)
		}
		g.wantErr(g.do(t.Context(), a, g.never), driver.ErrLost)
		g.wantLines("renewed b")
	})
}

// What a snapshot that is older than a change makes of it: a renewal and a release change no key, so the transaction is
// guarded; a grant does.
func TestGuardWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		for _, change := range []string{"renewal", "expiry of the snapshot's lease", "release", "grant", "release before the snapshot"} {
			t.Run(string(level)+"/"+change, func(t *testing.T) {
				t.Parallel()
				g := newGuardFixture(t, "pgx pool", level)
				a := g.hold("secret a")
				soon := change == "expiry of the snapshot's lease"
				if soon {
					g.exec(`UPDATE holdfast_locks SET expires = clock_timestamp() + interval '500 ms'`)
				}
				run, check, commit, rollback := g.begin(t.Context())
				before := change == "release before the snapshot" // and after the transaction's beginning
				if before {
					if err := g.locker.Release(t.Context(), a.lease); err != nil {
						t.Fatal(err)
					}
				}
				var n int
				if err := run(t.Context(), `SELECT count(*) FROM journal`, &n); err != nil { // takes the snapshot
					t.Fatal(err)
				}
				switch change {
				case "release before the snapshot":
				case "release":
					if err := g.locker.Release(t.Context(), a.lease); err != nil {
						t.Fatal(err)
					}
				case "grant":
					g.follow(a, "secret b")
				default:
					if _, err := g.locker.Renew(t.Context(), a.lease); err != nil {
						t.Fatal(err)
					}
				}
				if soon {
					time.Sleep(600 * time.Millisecond) // the lease that the snapshot has is over
				}
				err := check(a)
				switch snapshot := level != pgx.ReadCommitted; {
				case change == "grant" && snapshot:
					if sqlState(err) != "40001" {
						t.Errorf("got %v, want 40001", err)
					}
					_ = rollback()
				case change == "grant" || before || change == "release" && !snapshot:
					g.wantErr(err, driver.ErrLost)
					_ = rollback()
				case err != nil:
					t.Error(err)
				default: // the next grant waits, although the row has a later version than the snapshot
					if err := note("a")(t.Context(), run); err != nil {
						t.Error(err)
					}
					var next sync.WaitGroup
					next.Go(func() { g.follow(a, "secret b") })
					g.waitBlocked()
					if err := commit(); err != nil {
						t.Error(err)
					}
					next.Wait()
				}
			})
		}
	}
}

// The server ends a guarded transaction that is idle, and keeps a lower limit of the program's own.
func TestGuardBoundsIdleTransactions(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]string{"0": "1min", "2s": "2s", "2h": "1min", "700": "700ms"} {
		t.Run(own, func(t *testing.T) {
			t.Parallel()
			g := newGuardFixture(t, "pgx pool", pgx.ReadCommitted)
			a := g.hold("secret a")
			var got string
			run, check, _, rollback := g.begin(t.Context())
			defer func() { _ = rollback() }()
			if err := run(t.Context(), `SET idle_in_transaction_session_timeout = '`+own+`'`); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(check(a), run(t.Context(), `SHOW idle_in_transaction_session_timeout`, &got)); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("the limit of %s has become %s, want %s", own, got, want)
			}
		})
	}
}

// Many holders outlive their leases without noticing. Their writes do not conflict: only the guard
// orders them.
func TestGuardHistory(t *testing.T) {
	t.Parallel()
	for _, level := range levels[:2] {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			testGuardHistory(t, newGuardFixture(t, "pgx pool", level))
		})
	}
}

func testGuardHistory(t *testing.T, g *guardFixture) {
	g.exec(`CREATE TABLE writes (token bigint)`)
	var accepted, refused atomic.Int64
	var mu sync.Mutex
	seen := map[uint64]int{} // of each accepted transaction's first read: the writes with its token or lower ones
	var holders sync.WaitGroup
	for i := range 4 {
		holders.Go(func() {
			for round := range 8 {
				h := testHold{ctx: t.Context()}
				for tries := 0; h.lease.Token == 0; tries++ {
					lease, err := g.locker.TryAcquire(t.Context(), driver.Request{Name: "job", TTL: time.Second,
						ID: driver.NewLeaseID(fmt.Sprintf("secret %d.%d.%d", i, round, tries))})
					var held *driver.HeldError
					switch {
					case err == nil:
						h.lease = lease
					case !errors.As(err, &held):
						t.Errorf("acquire: %v", err)
						return
					default:
						// Its holder does not renew and does not release: end the lease at a moment of chance.
						time.Sleep(rand.N(20 * time.Millisecond))
						if rand.N(3) == 0 {
							g.expire()
						}
					}
				}
				for range 4 {
					err := g.do(t.Context(), h, func(ctx context.Context, run statement) error {
						var lower, higher int
						if err := run(ctx, fmt.Sprintf(`SELECT count(*) FILTER (WHERE token < %[1]d), count(*) FILTER (WHERE token > %[1]d) FROM writes`,
							h.lease.Token), &lower, &higher); err != nil {
							return err
						}
						time.Sleep(rand.N(10 * time.Millisecond))
						if err := run(ctx, fmt.Sprintf(`INSERT INTO writes VALUES (%d)`, h.lease.Token)); err != nil {
							return err
						}
						if err := run(ctx, fmt.Sprintf(`SELECT count(*) FROM writes WHERE token > %d`, h.lease.Token), &higher); err != nil || higher > 0 {
							return errors.Join(err, errOvertaken)
						}
						mu.Lock()
						defer mu.Unlock()
						if was, ok := seen[h.lease.Token]; ok && was != lower {
							t.Errorf("token %d saw %d lower writes, and then %d", h.lease.Token, was, lower)
						}
						seen[h.lease.Token] = lower
						return nil
					})
					switch {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, driver.ErrLost), errors.Is(err, errOvertaken), sqlState(err) == "40001":
						refused.Add(1)
					default:
						t.Errorf("unexpected: %v", err)
					}
				}
			}
		})
	}
	holders.Wait()
	if accepted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("accepted %d, refused %d: the test did not bring holders together", accepted.Load(), refused.Load())
	}
	for token, saw := range seen {
		var all, own int
		if err := g.db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE token < $1), count(*) FILTER (WHERE token = $1) FROM writes`,
			int64(token)).Scan(&all, &own); err != nil {
			t.Fatal(err)
		}
		if own > 0 && saw != all {
			t.Errorf("token %d saw %d writes of earlier holders, there are %d: one came late", token, saw, all)
		}
	}
}

var errOvertaken = errors.New("a later holder has written")

// A role that may only read the locks and update one harmless column can be guarded.
func TestGuardRights(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	g := newGuardFixtureAt(t, server.Database(t), "pgx pool", pgx.ReadCommitted)
	a := g.hold("a")
	admin, err := url.Parse(server.AdminURL(g.db.Config().ConnConfig.Database))
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.SQL(t, admin.String(), `CREATE ROLE reader LOGIN PASSWORD 'reader'`)
	g.exec(`GRANT USAGE ON SCHEMA public TO reader`)
	g.exec(`GRANT ALL ON journal, journal_n_seq TO reader`)
	g.exec(`GRANT SELECT ON holdfast_locks TO reader`)
	admin.User = url.UserPassword("reader", "reader")
	conn := client(t, admin.String())
	guard, err := NewGuard(g.locker, conn, pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k := pgxKind{guard}
	if err := k.do(t.Context(), a, note("a")); sqlState(err) != "42501" {
		t.Errorf("without UPDATE: %v", err)
	}
	g.exec(`GRANT UPDATE (renewals) ON holdfast_locks TO reader`)
	if err := k.do(t.Context(), a, note("a")); err != nil {
		t.Error(err)
	}
	g.wantLines("a")
}

// A pooler that gives each transaction another connection of the server does not weaken the guard: both are the
// transaction's. One that gives each statement another refuses transactions.
func TestGuardThroughAPooler(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	for _, mode := range []string{postgrestest.SessionMode, postgrestest.TransactionMode, postgrestest.StatementMode} {
		pooler := postgrestest.PgBouncer(t, server, mode)
		for _, driverName := range []string{"pgx pool", "pgx", "postgres"} {
			t.Run(mode+"/"+driverName, func(t *testing.T) {
				t.Parallel()
				direct := server.Database(t)
				g := newGuardFixtureAt(t, direct, "pgx pool", pgx.ReadCommitted)
				through := pooler.At(t, direct)
				if driverName != "postgres" {
					through += "&default_query_exec_mode=exec"
				}
				g.connect(through, driverName, pgx.ReadCommitted)
				a := g.hold("secret a")
				if mode == postgrestest.StatementMode {
					if err := g.do(t.Context(), a, g.never); err == nil || errors.Is(err, ErrInDoubt) {
						t.Errorf("without transactions: %v", err)
					}
					return
				}
				var next sync.WaitGroup
				run, check, commit, _ := g.begin(t.Context())
				if err := errors.Join(check(a), note("a")(t.Context(), run)); err != nil {
					t.Fatal(err)
				}
				if _, err := g.locker.Renew(t.Context(), a.lease); err != nil {
					t.Error(err)
				}
				next.Go(func() {
					b := g.follow(a, "secret b")
					if err := g.do(t.Context(), b, note("b")); err != nil {
						t.Errorf("the next holder: %v", err)
					}
				})
				g.waitBlocked()
				if err := commit(); err != nil {
					t.Error(err)
				}
				next.Wait()
				g.wantErr(g.do(t.Context(), a, g.never), driver.ErrLost)
				g.wantLines("a b")
			})
		}
	}
}
