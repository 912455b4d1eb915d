package advisory_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/drivers/postgres/advisory"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const proof = "0123456789abcdef0123456789abcdef"

func claim(name, proof string) migrating.Claim {
	return migrating.Claim{Name: name, Owner: "me", Proof: proof, TTL: time.Minute}
}

func newLock(t *testing.T, url, key string) *advisory.Lock {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	pool.Close() // it has connections of its own
	l, err := advisory.New(pool, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// program is one that knows the advisory lock alone.
type program struct {
	t    *testing.T
	conn *pgx.Conn
}

func newProgram(t *testing.T, url string) program {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return program{t, conn}
}

func (p program) try(query string) (ok bool) {
	p.t.Helper()
	if err := p.conn.QueryRow(p.t.Context(), query).Scan(&ok); err != nil {
		p.t.Fatal(err)
	}
	return ok
}

// Programs with the advisory lock alone and programs with both exclude each other, whatever the key is.
func TestOldProgramsAndMigratedOnesExcludeEachOther(t *testing.T) {
	t.Parallel()
	for key, theirs := range map[string]string{"42": "42", "hashtext(name)": "hashtext('job')", "7, hashtext(name)": "7, hashtext('job')"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			l, old := newLock(t, url, key), newProgram(t, url)
			if !old.try(`SELECT pg_try_advisory_lock(` + theirs + `)`) {
				t.Fatal("the old program was refused")
			}
			if err := l.Acquire(t.Context(), claim("job", proof)); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("beside the old program: %v", err)
			}
			old.try(`SELECT pg_advisory_unlock(` + theirs + `)`)
			for range 2 { // and again: a repeat
				if err := l.Acquire(t.Context(), claim("job", proof)); err != nil {
					t.Fatal(err)
				}
			}
			if old.try(`SELECT pg_try_advisory_lock(` + theirs + `)`) {
				t.Error("the old program got the lock beside the migrated one")
			}
			if err := l.Acquire(t.Context(), claim("job", strings.Repeat("f", 32))); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("another claim of the same process: %v", err)
			}
			if err := errors.Join(l.Renew(t.Context(), claim("job", proof)), l.Release(t.Context(), claim("job", proof)),
				l.Release(t.Context(), claim("job", proof))); err != nil {
				t.Error(err)
			}
			if !old.try(`SELECT pg_try_advisory_lock(` + theirs + `)`) {
				t.Error("the old program was refused after the release")
			}
			if err := l.Renew(t.Context(), claim("job", proof)); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a renewal after the release: %v", err)
			}
		})
	}
}

// The end of the session is a loss at the next renewal, and not an acquisition of a new session.
func TestTheEndOfTheSessionIsALoss(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	l, old := newLock(t, url, "42"), newProgram(t, url)
	if err := l.Acquire(t.Context(), claim("job", proof)); err != nil {
		t.Fatal(err)
	}
	old.try(`SELECT bool_or(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err := l.Renew(t.Context(), claim("job", proof)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	postgrestest.WaitFor(t, "the lock is free", func() bool { return old.try(`SELECT pg_try_advisory_lock(42)`) })
	if err := l.Release(t.Context(), claim("job", proof)); err != nil {
		t.Error(err)
	}
}

// newHookedLock returns a lock of a pool whose configuration change makes.
func newHookedLock(t *testing.T, url, key string, change func(*pgxpool.Config)) *advisory.Lock {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l, err := advisory.New(pool, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A pool can learn its password and server only at each connection, such as with tokens of AWS or Azure, and prepare the connection.
func TestItConnectsAsThePoolDoes(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	old := newProgram(t, url)
	if _, err := old.conn.Exec(t.Context(), `CREATE SCHEMA app;
		CREATE FUNCTION app.key(name text) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT 7::bigint'`); err != nil {
		t.Fatal(err)
	}
	var tokens atomic.Int64
	l := newHookedLock(t, url, "key(name)", func(config *pgxpool.Config) {
		host, port, password := config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Password
		config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Password, config.ConnConfig.Fallbacks = "127.0.0.1", 1, "", nil
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if c.Port == port || c.Password == password {
				t.Error("a connection began with what another was given")
			}
			tokens.Add(1)
			c.Host, c.Port, c.Password = host, port, password
			return nil
		}
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, `SET search_path TO app`)
			return err
		}
	})
	other := strings.Repeat("f", 32)
	if err := l.Acquire(t.Context(), claim("job", proof)); err != nil {
		t.Fatal(err)
	}
	if old.try(`SELECT pg_try_advisory_lock(7)`) {
		t.Error("the old program got the lock beside the migrated one")
	}
	if err := l.Acquire(t.Context(), claim("job", other)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("another claim: %v", err)
	}
	if err := l.Release(t.Context(), claim("job", proof)); err != nil {
		t.Error(err)
	}
	if tokens.Load() != 2 {
		t.Errorf("BeforeConnect was called %d times for two connections", tokens.Load())
	}
}

// What a pool's hooks refuse is no lock, leaves no connection, and shows no password.
func TestHooksOfThePoolThatFail(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	var password string
	expect := func(l *advisory.Lock, want string) {
		t.Helper()
		err := l.Acquire(t.Context(), claim("job", proof))
		if err == nil || !strings.Contains(err.Error(), want) || password == "" || strings.Contains(err.Error(), password) {
			t.Errorf("got %v, want %q and no password", err, want)
		}
		if err := l.Renew(t.Context(), claim("job", proof)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a renewal: %v", err)
		}
	}
	expect(newHookedLock(t, url, "42", func(config *pgxpool.Config) {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			password = c.Password
			return errors.New("no token")
		}
	}), "cannot connect: no token")
	var conn *pgx.Conn
	expect(newHookedLock(t, url, "42", func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			conn = c
			_, err := c.Exec(ctx, `SET ROLE nobody_has_it`)
			return err
		}
	}), `cannot connect: ERROR: role "nobody_has_it" does not exist`)
	if conn == nil || !conn.IsClosed() {
		t.Error("the connection is still open")
	}
}

func TestAPoolerIsRefused(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	pooler := postgrestest.PgBouncer(t, server, postgrestest.TransactionMode)
	url := pooler.At(t, server.Database(t))
	for range 3 {
		err := newLock(t, url, "42").Acquire(t.Context(), claim("job", proof))
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "pooler") {
			t.Errorf("got %v", err)
		}
	}
	// The sessions of the pooler live on, and are other clients'.
	if old := newProgram(t, url); old.try(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')`) {
		t.Error("a session of the pooler has the lock")
	} else if old.try(`SELECT current_setting('idle_session_timeout') <> '0'`) {
		t.Error("a session of the pooler ends when it is idle")
	}
}

// A key that is NULL for a name locks nothing.
func TestAKeyThatIsNull(t *testing.T) {
	t.Parallel()
	err := newLock(t, postgrestest.URL(t), "nullif(hashtext(name), hashtext('job'))").Acquire(t.Context(), claim("job", proof))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), `the key of the advisory lock is NULL for the name "job"`) {
		t.Errorf("got %v", err)
	}
}

// A standby has advisory locks of its own, which exclude nobody on the primary.
func TestAStandbyIsRefused(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	url := server.Database(t)
	standby := server.Standby(t, false)
	old := newProgram(t, url)
	old.try(`SELECT pg_try_advisory_lock(42)`)
	err := newLock(t, standby.At(t, url), "42").Acquire(t.Context(), claim("job", proof))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("beside the old program on the primary: %v", err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	if _, err := advisory.New(nil, "42"); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := advisory.New(pool, " "); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	err = newLock(t, postgrestest.URL(t), "no_function(name)").Acquire(t.Context(), claim("job", proof))
	if err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("got %v", err)
	}
}

// The server ends a session that is not renewed, as that of a machine that has vanished.
func TestTheLockEndsAfterTheTTL(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	l, old := newLock(t, url, "42"), newProgram(t, url)
	short := claim("job", proof)
	short.TTL = 200 * time.Millisecond
	if err := l.Acquire(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	postgrestest.WaitFor(t, "the lock is free", func() bool { return old.try(`SELECT pg_try_advisory_lock(42)`) })
	if err := l.Renew(t.Context(), short); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if err := l.Acquire(t.Context(), short); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a repeat after the loss: %v", err)
	}
}

// A client with both locks holds the old one as long as the new one.
func TestAClientWithBothLocks(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	old := newProgram(t, url)
	both, err := migrating.New(memory.New(), newLock(t, url, "hashtext(name)"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := holdfast.New(both)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown(context.Background()) })
	if err := client.Do(t.Context(), "job", func(context.Context) error {
		if old.try(`SELECT pg_try_advisory_lock(hashtext('job'))`) {
			t.Error("the old program got the lock meanwhile")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !old.try(`SELECT pg_try_advisory_lock(hashtext('job'))`) {
		t.Error("the old program was refused afterwards")
	}
	if _, err := client.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("beside the old program: %v", err)
	}
}
