package oldlocks_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

func newGetLock(t *testing.T, db *sql.DB) *oldlocks.GetLock {
	t.Helper()
	l, err := oldlocks.NewGetLock(db)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// uniqueName is the name of a lock that only the test uses: the server has one set of them.
func uniqueName() string { return fmt.Sprintf("job_%016x", rand.Uint64()) }

// drop ends a session.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// program is a session that knows GET_LOCK alone.
type program struct {
	t    *testing.T
	conn *sql.Conn
}

func newProgram(t *testing.T, db *sql.DB) program {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drop(conn) })
	return program{t, conn}
}

func (p program) ask(query string) bool {
	p.t.Helper()
	var yes sql.NullBool
	if err := p.conn.QueryRowContext(p.t.Context(), query).Scan(&yes); err != nil {
		p.t.Fatal(err)
	}
	return yes.Bool
}

func (p program) take(name string) bool { return p.ask("SELECT GET_LOCK('" + name + "', 0)") }

// Programs that call GET_LOCK and migrated ones exclude each other.
func TestGetLockAndMigratedProgramsExcludeEachOther(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	l, old := newGetLock(t, db), newProgram(t, pool(t, addr))
	if !old.take(job) {
		t.Fatal("the old program was refused")
	}
	for range 3 {
		if err := l.Acquire(t.Context(), claim(job, "a")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside the old program: %v", err)
		}
	}
	if open := db.Stats(); open.OpenConnections != 1 || open.InUse != 0 {
		t.Errorf("refused attempts have left %+v", open)
	}
	old.ask("SELECT RELEASE_LOCK('" + job + "')")
	for range 2 { // and again: a repeat
		if err := l.Acquire(t.Context(), claim(job, "a")); err != nil {
			t.Fatal(err)
		}
	}
	if old.take(job) {
		t.Error("the old program got the lock beside the migrated one")
	}
	if err := l.Acquire(t.Context(), claim(job, "b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("another claim of the same process: %v", err)
	}
	if err := errors.Join(l.Release(t.Context(), claim(job, "b")), l.Renew(t.Context(), claim(job, "a"))); err != nil {
		t.Error(err)
	}
	if old.take(job) {
		t.Error("the release of another claim has freed the lock")
	}
	for range 2 {
		if err := l.Release(t.Context(), claim(job, "a")); err != nil {
			t.Error(err)
		}
	}
	if !old.take(job) {
		t.Error("the old program was refused after the release")
	}
	if err := l.Renew(t.Context(), claim(job, "a")); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal after the release: %v", err)
	}
	if open := db.Stats(); open.InUse != 0 {
		t.Errorf("the release has left %+v", open)
	}
	// A connection of the pool ends after as long as before.
	var limit, usual int
	if err := db.QueryRowContext(t.Context(), "SELECT @@session.wait_timeout, @@global.wait_timeout").Scan(&limit, &usual); err != nil ||
		limit != usual {
		t.Errorf("a session of the pool ends after %d s, and usually after %d s, %v", limit, usual, err)
	}
}

// A lock that a session of the same pool has is held: the server would give it to that session once more.
func TestLockOfTheSamePool(t *testing.T) {
	t.Parallel()
	job, db := uniqueName(), pool(t, mysqltest.Shared(t).Addr())
	db.SetMaxOpenConns(1)
	var got bool
	if err := db.QueryRowContext(t.Context(), "SELECT GET_LOCK('"+job+"', 0)").Scan(&got); err != nil || !got {
		t.Fatal(got, err)
	}
	if err := newGetLock(t, db).Acquire(t.Context(), claim(job, "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("the pool's own session has it: %v", err)
	}
}

// The lock of a program that was killed is free when the server notices the end of its session.
func TestKilledProgramWithGetLock(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	killed(t, addr, "get_lock", "-", job)
	l := newGetLock(t, pool(t, addr))
	eventually(t, "the lock is not granted", func() bool { return l.Acquire(t.Context(), claim(job, "a")) == nil })
	if err := l.Release(t.Context(), claim(job, "a")); err != nil {
		t.Error(err)
	}
}

// The end of the session is a loss at the next renewal, and not an acquisition of a new session.
func TestTheEndOfTheSessionIsALoss(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	l, old := newGetLock(t, pool(t, addr)), newProgram(t, pool(t, addr))
	if err := l.Acquire(t.Context(), claim(job, "a")); err != nil {
		t.Fatal(err)
	}
	var id string
	if err := old.conn.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK('"+job+"')").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := old.conn.ExecContext(t.Context(), "KILL "+id); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(t.Context(), claim(job, "a")); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	eventually(t, "the lock is not free", func() bool { return old.take(job) })
	if err := l.Acquire(t.Context(), claim(job, "a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a repeat after the loss: %v", err)
	}
	if err := l.Release(t.Context(), claim(job, "a")); err != nil {
		t.Error(err)
	}
}

// A session that no longer has the lock has lost it, although it lives, as one of a proxy that is another's meanwhile.
func TestSessionWithoutTheLock(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	l, old := newGetLock(t, db), newProgram(t, pool(t, addr))
	if err := l.Acquire(t.Context(), claim(job, "a")); err != nil {
		t.Fatal(err)
	}
	other := claim(uniqueName(), "a") // the name that the session is asked for
	if !old.take(other.Name) {
		t.Fatal("refused")
	}
	if err := l.Renew(t.Context(), other); !errors.Is(err, driver.ErrLost) {
		t.Errorf("another session has it: %v", err)
	}
	if open := db.Stats(); open.InUse != 0 {
		t.Errorf("the loss has left %+v", open)
	}
}

// The server ends a session that is not renewed, as that of a machine that has vanished.
func TestTheLockEndsAfterTheTTL(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	l, old := newGetLock(t, pool(t, addr)), newProgram(t, pool(t, addr))
	short := claim(job, "a")
	short.TTL = 1500 * time.Millisecond
	if err := l.Acquire(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock is not free, and was not renewed", func() bool { return old.take(job) })
	old.ask("SELECT RELEASE_LOCK('" + job + "')")
	if err := l.Acquire(t.Context(), short); err != nil { // after the loss
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 2*short.TTL; time.Sleep(short.TTL / 3) {
		if err := l.Renew(t.Context(), short); err != nil {
			t.Fatal(err)
		}
	}
	long := short
	long.TTL = 2 * short.TTL
	renewed := time.Now()
	if err := l.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock is not free", func() bool { return old.take(job) })
	if since := time.Since(renewed); since < long.TTL {
		t.Errorf("free %v after the renewal", since)
	}
	if err := l.Renew(t.Context(), short); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// A release does not wait for a renewal that hangs. The session ends, and the lock with it.
func TestReleaseWhileARenewalHangs(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	proxy := castest.NewProxy(t, addr)
	db := pool(t, proxy.Addr())
	l, old := newGetLock(t, db), newProgram(t, pool(t, addr))
	if err := l.Acquire(t.Context(), claim(job, "a")); err != nil {
		t.Fatal(err)
	}
	proxy.Set(castest.Stall)
	renewed := make(chan error, 1)
	go func() { renewed <- l.Renew(t.Context(), claim(job, "a")) }()
	time.Sleep(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Release(ctx, claim(job, "a")); err == nil {
		t.Error("a release without an answer")
	}
	if err := <-renewed; !errors.Is(err, driver.ErrLost) && !errors.Is(err, context.Canceled) {
		t.Errorf("the renewal: %v", err)
	}
	proxy.Set(castest.Pass)
	proxy.Cut()
	eventually(t, "the lock is not free", func() bool { return old.take(job) })
	if open := db.Stats(); open.InUse != 0 {
		t.Errorf("left %+v", open)
	}
}

// A call whose time is over before it is sent costs no session.
func TestRenewalThatIsNotSent(t *testing.T) {
	t.Parallel()
	job, l := uniqueName(), newGetLock(t, pool(t, mysqltest.Shared(t).Addr()))
	if err := l.Acquire(t.Context(), claim(job, "a")); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Renew(ended, claim(job, "a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(l.Renew(t.Context(), claim(job, "a")), l.Release(t.Context(), claim(job, "a"))); err != nil {
		t.Error(err)
	}
}

// A client with both locks holds the old one as long as the new one.
func TestAClientWithBothLocks(t *testing.T) {
	t.Parallel()
	job, addr := uniqueName(), mysqltest.Shared(t).Addr()
	old := newProgram(t, pool(t, addr))
	both, err := migrating.New(memory.New(), newGetLock(t, pool(t, addr)))
	if err != nil {
		t.Fatal(err)
	}
	client, err := holdfast.New(both)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown(context.Background()) })
	if err := client.Do(t.Context(), job, func(context.Context) error {
		if old.take(job) {
			t.Error("the old program got the lock meanwhile")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !old.take(job) {
		t.Error("the old program was refused afterwards")
	}
	if _, err := client.TryLock(t.Context(), job); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("beside the old program: %v", err)
	}
}

func TestArgumentsOfGetLock(t *testing.T) {
	t.Parallel()
	if _, err := oldlocks.NewGetLock(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	db := pool(t, mysqltest.Shared(t).Addr())
	for _, name := range []string{"", strings.Repeat("n", 65), "é", "a\nb"} {
		if err := newGetLock(t, db).Acquire(t.Context(), claim(name, "a")); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	l, whole := newGetLock(t, db), strings.Repeat("n", 64)
	if err := errors.Join(l.Acquire(t.Context(), claim(whole, "a")), l.Release(t.Context(), claim(whole, "a"))); err != nil {
		t.Error(err)
	}
	if open := db.Stats(); open.InUse != 0 {
		t.Errorf("left %+v", open)
	}
}
