package rivals

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
	"log/slog"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"
)

// rival is a way to have one holder, with the settings that it has by default.
type rival interface {
	// setUp makes the tables.
	setUp(ctx context.Context, at string) error
	// calls are one acquire and release, and one renewal of a lock that is held until end. renew is nil if nothing is sent.
	calls(ctx context.Context, at string) (pair, renew, end func() error, err error)
	// hold waits until it is the holder, calls held, and returns when it is notified that it is no longer: never, if it is not.
	hold(ctx context.Context, at string, held func()) error
	// try takes the lock without waiting, and reports whether it has it.
	try(ctx context.Context, at string) (bool, error)
	// statements is a pattern of its statements, and robbed gives its lock to another.
	statements() string
	robbed() string
}

var rivals = map[string]rival{"Holdfast": ours{}, "pglock": pgLock{}, "River": riverElector{}, "advisory": advisory{}}

const name = "job"

var never = make(chan struct{})

type ours struct{}

func (ours) setUp(ctx context.Context, at string) error {
	c, err := ours{}.open(ctx, at)
	if err != nil {
		return err
	}
	return c.Shutdown(ctx)
}

func (ours) open(ctx context.Context, at string) (*holdfast.Client, error) {
	return holdfast.Open(ctx, at, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
}

func (ours) calls(ctx context.Context, at string) (pair, renew, end func() error, err error) {
	c, err := ours{}.open(ctx, at)
	if err != nil {
		return nil, nil, nil, err
	}
	h, err := c.Lock(ctx, "renewed")
	if err != nil {
		return nil, nil, nil, err
	}
	pair = func() error {
		h, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return h.Release(ctx)
	}
	return pair, func() error { _, err := c.Locker().Renew(ctx, h.Lease()); return err }, func() error { return c.Shutdown(ctx) }, nil
}

func (ours) hold(ctx context.Context, at string, held func()) error {
	c, err := ours{}.open(ctx, at)
	if err != nil {
		return err
	}
	h, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	held()
	<-h.Context().Done()
	return nil
}

func (ours) try(ctx context.Context, at string) (bool, error) {
	c, err := ours{}.open(ctx, at)
	if err != nil {
		return false, err
	}
	_, err = c.TryLock(ctx, name)
	if errors.Is(err, driver.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

func (ours) statements() string { return "%" }
func (ours) robbed() string {
	return `UPDATE holdfast_locks SET token = token + 1, holder = 'another', expires = clock_timestamp() + interval '1 hour'`
}

type pgLock struct{}

func (pgLock) open(at string) (*pglock.Client, error) {
	db, err := sql.Open("postgres", at)
	if err != nil {
		return nil, err
	}
	return pglock.New(db, pglock.WithLogger(log.New(io.Discard, "", 0)))
}

func (pgLock) setUp(_ context.Context, at string) error {
	c, err := pgLock{}.open(at)
	if err != nil {
		return err
	}
	return c.CreateTable()
}

func (pgLock) calls(ctx context.Context, at string) (pair, renew, end func() error, err error) {
	c, err := pgLock{}.open(at)
	if err != nil {
		return nil, nil, nil, err
	}
	l, err := c.AcquireContext(ctx, "renewed")
	if err != nil {
		return nil, nil, nil, err
	}
	pair = func() error {
		l, err := c.AcquireContext(ctx, name)
		if err != nil {
			return err
		}
		return c.ReleaseContext(ctx, l)
	}
	return pair, func() error { return c.SendHeartbeat(ctx, l) }, l.Close, nil
}

func (pgLock) hold(ctx context.Context, at string, held func()) error {
	c, err := pgLock{}.open(at)
	if err != nil {
		return err
	}
	return c.Do(ctx, name, func(ctx context.Context, _ *pglock.Lock) error {
		held()
		<-ctx.Done()
		return nil
	})
}

func (pgLock) try(ctx context.Context, at string) (bool, error) {
	c, err := pgLock{}.open(at)
	if err != nil {
		return false, err
	}
	_, err = c.AcquireContext(ctx, name, pglock.FailIfLocked())
	if errors.Is(err, pglock.ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err
}

func (pgLock) statements() string { return "%" }
func (pgLock) robbed() string {
	return `UPDATE locks SET owner = 'another', record_version_number = record_version_number + 1000`
}

type riverElector struct{}

const riverTTL = 15 * time.Second // that of its elector: 5 s, and 10 s

func (riverElector) open(ctx context.Context, at string) (*pgxpool.Pool, riverdriver.Executor, error) {
	pool, err := pgxpool.New(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	return pool, riverpgxv5.New(pool).GetExecutor(), nil
}

func (riverElector) setUp(ctx context.Context, at string) error {
	pool, _, err := riverElector{}.open(ctx, at)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (riverElector) calls(ctx context.Context, at string) (pair, renew, end func() error, err error) {
	_, exec, err := riverElector{}.open(ctx, at)
	if err != nil {
		return nil, nil, nil, err
	}
	var leader *riverdriver.Leader
	elect := func() (err error) {
		leader, err = exec.LeaderAttemptElect(ctx, &riverdriver.LeaderElectParams{LeaderID: "a", TTL: riverTTL})
		return err
	}
	resign := func() error {
		_, err := exec.LeaderResign(ctx, &riverdriver.LeaderResignParams{
			ElectedAt: leader.ElectedAt, LeaderID: "a", LeadershipTopic: "river_leadership"})
		return err
	}
	pair = func() error {
		if err := elect(); err != nil {
			return err
		}
		return resign()
	}
	reelect := func() error {
		_, err := exec.LeaderAttemptReelect(ctx, &riverdriver.LeaderReelectParams{ElectedAt: leader.ElectedAt, LeaderID: "a", TTL: riverTTL})
		return err
	}
	return pair, func() error { // it has one lock, which pair has released
		if err := reelect(); err != nil {
			return elect()
		}
		return nil
	}, resign, nil
}

type noArgs struct{}

func (noArgs) Kind() string { return "none" }

// hold runs a client. Its API does not say whether it is the leader, but its table does.
func (riverElector) hold(ctx context.Context, at string, held func()) error {
	pool, _, err := riverElector{}.open(ctx, at)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[noArgs]) error { return nil }))
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	for id := ""; id != c.ID(); time.Sleep(100 * time.Millisecond) {
		_ = pool.QueryRow(ctx, `SELECT leader_id || '' FROM river_leader WHERE expires_at > now()`).Scan(&id)
	}
	held()
	<-never
	return nil
}

func (riverElector) try(ctx context.Context, at string) (bool, error) {
	_, exec, err := riverElector{}.open(ctx, at)
	if err != nil {
		return false, err
	}
	_, err = exec.LeaderAttemptElect(ctx, &riverdriver.LeaderElectParams{LeaderID: rand(), TTL: riverTTL})
	if err != nil && err.Error() == "not found" {
		return false, nil
	}
	return err == nil, err
}

func (riverElector) statements() string { return "%river_leader%" }
func (riverElector) robbed() string {
	return `UPDATE river_leader SET leader_id = 'another', elected_at = now(), expires_at = now() + interval '1 hour'`
}

// advisory is a session's lock on a connection of its own.
type advisory struct{}

func (advisory) setUp(context.Context, string) error { return nil }

func (advisory) calls(ctx context.Context, at string) (pair, renew, end func() error, err error) {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return nil, nil, nil, err
	}
	return func() error {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(7)`); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `SELECT pg_advisory_unlock(7)`)
		return err
	}, nil, func() error { return conn.Close(ctx) }, nil
}

func (advisory) hold(ctx context.Context, at string, held func()) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(7)`); err != nil {
		return err
	}
	held()
	<-never
	return nil
}

func (advisory) try(ctx context.Context, at string) (got bool, err error) {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return false, err
	}
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(7)`, pgx.QueryExecModeSimpleProtocol).Scan(&got)
	return got, err
}

func (advisory) statements() string { return "%advisory%" }
func (advisory) robbed() string     { return `SELECT pg_advisory_lock(7)` }
