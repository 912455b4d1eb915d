package oldlocks

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

// The limits of a TTL. The server counts whole seconds.
const (
	minTTL = time.Second
	maxTTL = 24 * time.Hour
)

// GetLock has the named locks of programs that call GET_LOCK. It is safe for concurrent use. Only the GetLock that has acquired a claim
// can renew and release it.
//
// Each lock that is held has a connection of the pool, as a session holds the lock. The server ends the session, and with it the lock, if
// it was not renewed for the TTL (wait_timeout).
//
// A session that ends for another reason, such as a restart of the server, frees the lock at once. The holder notices it
// at its next renewal, by default within a third of the TTL. A renewal that is not answered in time ends the session, too.
type GetLock struct {
	db *sql.DB

	mu   sync.Mutex
	held map[string]*session // by proof
}

var _ migrating.Old = (*GetLock)(nil)

// session is the connection of one lock that is held. busy has one element while a call uses it. released is closed when the release
// begins. stop ends ctx, and so the renewal under way.
type session struct {
	conn     *sql.Conn
	busy     chan struct{}
	released chan struct{}
	ctx      context.Context //nolint:containedctx // that of all renewals
	stop     context.CancelFunc
}

// validName is a name that is the same for every session.
var validName = regexp.MustCompile(`^[ -~]{1,64}$`)

// NewGetLock returns the locks that other programs take by GET_LOCK on the server to which the pool leads, by the driver of
// github.com/go-sql-driver/mysql. It makes no request. The pool must reach that one server directly: a proxy may give a session's lock to
// another client, and other servers, also of one cluster, know nothing of the lock. Its limit of connections must exceed the number of
// locks. A name has 1 to 64 characters of ASCII: those of others depend on the character set of the session.
func NewGetLock(db *sql.DB) (*GetLock, error) {
	if db == nil {
		return nil, driver.Invalid("db", "nil", "a *sql.DB")
	}
	return &GetLock{db: db, held: map[string]*session{}}, nil
}

// Info implements [migrating.Old]. A session's locks end with the server.
func (l *GetLock) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: driver.Limits{MinTTL: minTTL, MaxTTL: maxTTL},
		Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}
}

func (l *GetLock) session(proof string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[proof]
}

// take removes a session, so that its caller ends it. Renewals that wait for it are lost.
func (l *GetLock) take(proof string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.held[proof]
	delete(l.held, proof)
	if s != nil {
		close(s.released)
	}
	return s
}

// forget removes a session that has ended, and no later one of the same proof.
func (l *GetLock) forget(proof string, s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[proof] == s {
		delete(l.held, proof)
	}
}

// end closes a connection for good: in the pool, its session would keep the lock and the time limit.
func end(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// bound makes the server end a session that is idle for the TTL.
func bound(ctx context.Context, conn *sql.Conn, ttl time.Duration) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", (ttl+time.Second-time.Nanosecond)/time.Second))
	return failedLock(ctx, err)
}

func failedLock(ctx context.Context, err error) error { return failed(ctx, "a lock of GET_LOCK", err) }

func held(claim migrating.Claim) error {
	return &driver.HeldError{Record: driver.Record{Name: claim.Name, State: driver.StateHeld}}
}

// Acquire implements [migrating.Old].
func (l *GetLock) Acquire(ctx context.Context, claim migrating.Claim) error {
	if !validName.MatchString(claim.Name) {
		return driver.Invalid("name of the old lock", driver.Quote(claim.Name), "1 to 64 characters of ASCII")
	}
	if err := l.Renew(ctx, claim); !errors.Is(err, driver.ErrLost) { // it is a repeat
		return err
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return failedLock(ctx, err)
	}
	// What others hold is refused before the session is changed: its connection goes back to the pool. So is a lock that the session has
	// already, by another part of the program.
	var writes, free sql.NullBool
	err = conn.QueryRowContext(ctx, "SELECT "+takesWrites+", IS_FREE_LOCK("+literal(claim.Name)+")").Scan(&writes, &free)
	switch {
	case err != nil:
		err = failedLock(ctx, err)
	case !writes.Bool: // Promise 1: its locks exclude nobody on the primary
		err = failedLock(ctx, errReadOnly)
	case !free.Bool:
		err = held(claim)
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	var granted sql.NullBool
	if err = bound(ctx, conn, claim.TTL); err == nil { // the limit comes before the lock
		err = failedLock(ctx, conn.QueryRowContext(ctx, "SELECT GET_LOCK("+literal(claim.Name)+", 0)").Scan(&granted))
	}
	switch {
	case err != nil:
	case !granted.Valid:
		err = failedLock(ctx, errors.New("the server could not take it"))
	case !granted.Bool:
		err = held(claim)
	}
	if err != nil {
		end(conn)
		return err
	}
	s := &session{conn: conn, busy: make(chan struct{}, 1), released: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[claim.Proof] = s
	return nil
}

// Renew implements [migrating.Old]: an answer of the session says that it still has the lock, on a server that still takes writes.
func (l *GetLock) Renew(ctx context.Context, claim migrating.Claim) error {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the session's lifetime applies besides the caller's context
	var has sql.NullBool
	err := bound(ctx, s.conn, claim.TTL)
	if err == nil { // Promise 1: the locks of a server that is a replica now exclude nobody
		err = failedLock(ctx, s.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK("+literal(claim.Name)+") = CONNECTION_ID() AND "+takesWrites).
			Scan(&has))
	}
	switch {
	case err == nil && has.Bool:
		return nil
	case err != nil && lives(s.conn):
		return err
	}
	// Promise 1: with the session the lock is gone, or soon. It cannot be asked again.
	l.forget(claim.Proof, s)
	s.stop()
	end(s.conn)
	return driver.Errorf("%w: the session has ended", driver.ErrLost)
}

// lives reports whether a connection can be used again.
func lives(conn *sql.Conn) bool {
	return conn.Raw(func(c any) error {
		if v, is := c.(sqldriver.Validator); is && v.IsValid() {
			return nil
		}
		return sqldriver.ErrBadConn
	}) == nil
}

// Release implements [migrating.Old]. The end of the session frees the lock, too. If the release gets no answer, that is when the session
// has been idle for the TTL, and a repeat has nothing to do.
func (l *GetLock) Release(ctx context.Context, claim migrating.Claim) error {
	s := l.take(claim.Proof)
	if s == nil {
		return nil
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done(): // a renewal hangs: it ends now, and so does the session
		s.stop()
		s.busy <- struct{}{}
	}
	s.stop()
	_, err := s.conn.ExecContext(ctx, "DO RELEASE_LOCK("+literal(claim.Name)+")")
	end(s.conn)
	return failedLock(ctx, err)
}
