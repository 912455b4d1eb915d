// Package advisory holds the session-level advisory locks of other programs: those that call pg_advisory_lock or
// pg_try_advisory_lock. They are old locks for package [github.com/holdfast-go/holdfast/migrating].
package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

const (
	backend = "postgres"
	// minTTL leaves a session time for its own renewals.
	minTTL = 100 * time.Millisecond
	maxTTL = 24 * time.Hour
)

// Lock is an old lock. It is safe for concurrent use. Only the Lock that has acquired a claim can renew and release it.
//
// Each lock that is held has a connection of its own, as a session holds the lock. The server ends the session, and
// with it the lock, if it was not renewed for the TTL (idle_session_timeout).
//
// A session that ends for another reason, such as a restart of the server, frees the lock at once. The holder notices it
// at its next renewal, by default within a third of the TTL. A renewal that is not answered in time ends the session, too.
type Lock struct {
	config *pgxpool.Config
	key    string // SQL

	mu   sync.Mutex
	held map[string]*session // by proof
}

var _ migrating.Old = (*Lock)(nil)

// session is the connection of one lock that is held. busy has one element while a call uses it. released is closed when the release
// begins.
type session struct {
	conn     *pgx.Conn
	busy     chan struct{}
	released chan struct{}
}

func newSession(conn *pgx.Conn) *session {
	return &session{conn: conn, busy: make(chan struct{}, 1), released: make(chan struct{})}
}

// New returns the locks that other programs take with the key: an SQL expression of name, such as "42", "hashtext(name)" or
// "7, hashtext(name)". It connects as the pool does, by its BeforeConnect and AfterConnect, too; the pool may be closed. The
// server must be PostgreSQL 14 or newer and be reached directly: a pooler may give a session's lock to another client.
func New(pool *pgxpool.Pool, key string) (*Lock, error) {
	switch {
	case pool == nil:
		return nil, driver.Invalid("pool", "nil", "a *pgxpool.Pool")
	case strings.TrimSpace(key) == "":
		return nil, driver.Invalid("key", driver.Quote(key), `an SQL expression, such as "hashtext(name)"`)
	}
	config := pool.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // each connection runs few statements
	return &Lock{config: config, key: key, held: map[string]*session{}}, nil
}

// Info implements [migrating.Old]. A session's locks end with the server.
func (l *Lock) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: driver.Limits{MinTTL: minTTL, MaxTTL: maxTTL},
		Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}
}

func (l *Lock) session(proof string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[proof]
}

// take removes a session, so that its caller ends it. Renewals that wait for it are lost.
func (l *Lock) take(proof string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.held[proof]
	delete(l.held, proof)
	if s != nil {
		close(s.released)
	}
	return s
}

// connect opens a connection as the pool does: its hooks may set the server, the password, the role and the search path.
func (l *Lock) connect(ctx context.Context) (*pgx.Conn, error) {
	dial := l.config.ConnConfig.Copy()
	if before := l.config.BeforeConnect; before != nil {
		if err := before(ctx, dial); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, dial)
	if err != nil {
		return nil, err
	}
	if after := l.config.AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			end(ctx, conn)
			return nil, err
		}
	}
	return conn, nil
}

// Acquire implements [migrating.Old].
func (l *Lock) Acquire(ctx context.Context, claim migrating.Claim) error {
	if err := l.Renew(ctx, claim); !errors.Is(err, driver.ErrLost) { // it is a repeat
		return err
	}
	conn, err := l.connect(ctx)
	if err != nil {
		var connect *pgconn.ConnectError
		if errors.As(err, &connect) { // without what pgx puts before the cause: user and database
			err = errors.Unwrap(connect)
		}
		return errors.New("cannot connect: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var pid uint32
	var standby bool
	var granted *bool
	// The statement looks at its session before it changes it: that of a pooler lives on, with the lock, for other clients. The limit
	// of the session comes before the lock.
	err = conn.QueryRow(ctx, `WITH n AS MATERIALIZED (SELECT $1::text AS name, CASE WHEN pg_backend_pid() = $3::int AND NOT pg_is_in_recovery()
			THEN set_config('idle_session_timeout', $2::text, false) END AS set)
		SELECT pg_backend_pid(), pg_is_in_recovery(), CASE WHEN set <> '' THEN pg_try_advisory_lock(`+l.key+`) END FROM n`,
		claim.Name, millis(claim.TTL), int32(conn.PgConn().PID())).Scan(&pid, &standby, &granted) //nolint:gosec // that of a pooler is any number
	switch {
	case err != nil:
		err = explain(err)
	case pid != conn.PgConn().PID():
		err = driver.Denied(errors.New("a pooler is between: advisory locks need a direct connection to the server"))
	case standby: // Promise 1: its locks exclude nobody on the primary
		err = driver.Denied(errors.New("the server is a standby: connect to the primary alone, such as by target_session_attrs=primary"))
	case granted == nil:
		err = driver.Denied(fmt.Errorf("the key of the advisory lock is NULL for the name %s", driver.Quote(claim.Name)))
	case !*granted:
		err = &driver.HeldError{Record: driver.Record{Name: claim.Name, State: driver.StateHeld}}
	}
	if err != nil {
		end(ctx, conn)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[claim.Proof] = newSession(conn)
	return nil
}

// Renew implements [migrating.Old]: an answer of the session says that it still has the lock.
func (l *Lock) Renew(ctx context.Context, claim migrating.Claim) error {
	s := l.session(claim.Proof)
	if s == nil {
		return driver.Errorf("%w: there is no session with it", driver.ErrLost)
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-s.released: // the release keeps the connection: waiting would last until the time limit
		return driver.Errorf("%w: its release has begun", driver.ErrLost)
	case <-ctx.Done():
		return ctx.Err()
	}
	var held bool
	err := s.conn.QueryRow(ctx, `SELECT set_config('idle_session_timeout', $1::text, false) <> ''
		AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted)`, millis(claim.TTL)).Scan(&held)
	switch {
	case err == nil && held:
		return nil
	case err != nil && !s.conn.IsClosed():
		return explain(err)
	}
	// Promise 1: with the session the lock is gone, or soon. It cannot be asked again.
	l.take(claim.Proof)
	end(ctx, s.conn)
	return driver.Errorf("%w: the session has ended", driver.ErrLost)
}

// Release implements [migrating.Old]. The end of the session frees the lock, too.
func (l *Lock) Release(ctx context.Context, claim migrating.Claim) error {
	s := l.take(claim.Proof)
	if s == nil {
		return nil
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done(): // a renewal hangs: without its connection it ends, and so does the session
		_ = s.conn.PgConn().Conn().Close()
		return ctx.Err()
	}
	_, err := s.conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	end(ctx, s.conn)
	return explain(err)
}

// end closes a connection, also after its context has ended.
func end(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func millis(ttl time.Duration) string { return fmt.Sprint(max(ttl.Milliseconds(), 1)) }

// explain makes the error of a statement: an end of its context is no end of this lock.
func explain(err error) error {
	var server *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &server) && server.Code == "42704":
		return driver.Denied(fmt.Errorf("%s: PostgreSQL 14 or newer is needed", server.Error()))
	case errors.As(err, &server) && (strings.HasPrefix(server.Code, "42") || strings.HasPrefix(server.Code, "22")):
		return driver.Denied(fmt.Errorf("the key of the advisory lock: %s", server.Error()))
	}
	return errors.New(err.Error())
}
