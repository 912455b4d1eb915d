package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// tenant is the key of a context's value that hooks of a program need.
type tenant struct{}

var errTenant = errors.New("no tenant in the context")

func needsTenant(ctx context.Context) error {
	if ctx.Value(tenant{}) == nil {
		return errTenant
	}
	return nil
}

// openWith returns a Locker that connects as a pool does that change has configured.
func openWith(ctx context.Context, t *testing.T, at string, change func(*pgxpool.Config), opts ...Option) (*Locker, error) {
	t.Helper()
	settings, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	change(settings)
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := New(ctx, pool, append([]Option{WithLogger(discard)}, opts...)...)
	if err == nil {
		t.Cleanup(func() { closeLocker(t, l) })
	}
	return l, err
}

// A Locker that is made in a request renews without that request's context: hooks for those that borrow a connection are left out,
// and hooks for new connections that need the context fail at once.
func TestHooksThatNeedTheContextOfARequest(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	request1 := context.WithValue(bounded(t), tenant{}, "one")
	l, err := openWith(request1, t, at, func(c *pgxpool.Config) {
		c.BeforeAcquire = func(ctx context.Context, _ *pgx.Conn) bool { return needsTenant(ctx) == nil } //nolint:staticcheck // old
		c.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) { return true, needsTenant(ctx) }
		c.AfterRelease = func(*pgx.Conn) bool { return false }
		c.ShouldPing = func(ctx context.Context, _ pgxpool.ShouldPingParams) bool {
			return ctx.Value(tenant{}).(string) == "two"
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryAcquire(request1, request("job", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	for name, change := range map[string]func(*pgxpool.Config){
		"BeforeConnect": func(c *pgxpool.Config) {
			c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error { return needsTenant(ctx) }
		},
		"AfterConnect": func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error { return needsTenant(ctx) }
		},
	} {
		_, err := openWith(request1, t, at, change)
		if err == nil || !strings.Contains(err.Error(), "the pool's "+name+", whose context has no values: "+errTenant.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection that works renews leases for as long as no new one can be made, and is replaced once one can be.
func TestAnOldConnectionStaysUntilANewOneIsMade(t *testing.T) {
	t.Parallel()
	var accept atomic.Bool
	var asked atomic.Int32
	logger, logged := locktest.NewLog()
	l, err := openWith(bounded(t), t, postgrestest.URL(t), func(c *pgxpool.Config) {
		c.MaxConns, c.MaxConnLifetime = 1, time.Nanosecond
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if asked.Add(1) > 1 && !accept.Load() {
				return errors.New("the password has changed")
			}
			return nil
		}
	}, WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	// again lets the next try begin at once, when the one before has ended.
	again := func() {
		postgrestest.WaitFor(t, "the try has ended", func() bool {
			l.conns.mu.Lock()
			defer l.conns.mu.Unlock()
			l.conns.next = time.Time{}
			return !l.conns.trying
		})
	}
	used := func() (pid uint32) {
		if err := l.call(bounded(t), nil, func(_ context.Context, c *pgx.Conn) error {
			pid = c.PgConn().PID()
			return nil
		}); err != nil {
			t.Error(err)
		}
		return pid
	}
	lease := acquire(t, l, request("job", "a"))
	first := used()
	for range 3 {
		again()
		before := asked.Load()
		for range 5 {
			if _, err := l.Renew(bounded(t), lease); err != nil {
				t.Errorf("a renewal while no new connection can be made: %v", err)
			}
		}
		postgrestest.WaitFor(t, "a new connection was tried", func() bool { return asked.Load() > before })
		if n := asked.Load() - before; n > 1 {
			t.Errorf("%d new connections were tried", n)
		}
	}
	if now := used(); now != first {
		t.Errorf("the connection %d is now %d", first, now)
	}
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 || !strings.Contains(logged.String(), "the password has changed") {
		t.Errorf("logged: %s", logged)
	}
	accept.Store(true)
	postgrestest.WaitFor(t, "the connection is replaced", func() bool {
		again()
		return used() != first
	})
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
}

// A password that changes in the file of passwords is read for the next connection.
func TestAPasswordThatChangesInItsFile(t *testing.T) {
	t.Setenv("PGPASSWORD", "")
	server := postgrestest.Start(t, postgrestest.Options{})
	at, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	admin := client(t, server.AdminURL(strings.TrimPrefix(at.Path, "/")))
	file := filepath.Join(t.TempDir(), "passwords")
	user := at.User.Username()
	set := func(password string) {
		run(t, admin, `ALTER ROLE `+pgx.Identifier{user}.Sanitize()+` PASSWORD '`+password+`'`)
		if err := os.WriteFile(file, []byte("*:*:*:"+user+":"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at.User = url.User(user)
	set("first")
	byFile := with(at.String(), "passfile="+queryEscape(file))
	l := open(t, byFile)
	viaPool, err := openWith(bounded(t), t, byFile, func(*pgxpool.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, request("job", "a"))
	set("second")
	run(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, user)
	for _, l := range []*Locker{l, viaPool} {
		_, _ = l.Renew(bounded(t), lease) // on the connection that has ended
		if _, err := l.Renew(bounded(t), lease); err != nil {
			t.Error(err)
		}
	}
}

// What a URL names as files is read again for each connection; what a program has set stays.
func TestFilesAreReadAgain(t *testing.T) {
	t.Setenv("PGPASSWORD", "")
	dir := t.TempDir()
	authority := filepath.Join(dir, "authority.pem")
	writeCertificate(t, authority, 1)
	at := "postgres://app@127.0.0.1:1,127.0.0.2:1/x?sslmode=verify-full&sslrootcert=" + queryEscape(authority)
	l, err := connect(at, []Option{WithLogger(discard)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	dial := l.pool.Config()
	before := *dial.ConnConfig.TLSConfig.RootCAs
	writeCertificate(t, authority, 2)
	if err := dial.BeforeConnect(t.Context(), dial.ConnConfig); err != nil {
		t.Fatal(err)
	}
	if dial.ConnConfig.TLSConfig.RootCAs.Equal(&before) || dial.ConnConfig.Fallbacks[0].TLSConfig.RootCAs.Equal(&before) {
		t.Error("the certificate is that of before")
	}
	if err := os.WriteFile(authority, nil, 0o600); err != nil { // is being written
		t.Fatal(err)
	}
	if err := dial.BeforeConnect(t.Context(), dial.ConnConfig); err != nil || dial.ConnConfig.TLSConfig == nil {
		t.Errorf("while the file is empty: %v", err)
	}

	file := filepath.Join(dir, "passwords")
	write := func(password string) {
		if err := os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	own, err := pgx.ParseConfig("postgres://app@127.0.0.1:1/x?passfile=" + queryEscape(file))
	if err != nil {
		t.Fatal(err)
	}
	another, programs := own.Copy(), own.Copy()
	another.User, programs.Password = "another", "of the program"
	for _, c := range []struct {
		dial *pgx.ConnConfig
		want string
	}{{own, "second"}, {another, "first"}, {programs, "of the program"}} {
		write("first")
		again := rereads(c.dial, false)
		write("second")
		if again(c.dial); c.dial.Password != c.want {
			t.Errorf("the password is %q, want %q", c.dial.Password, c.want)
		}
	}
}

// The connection that listens follows the others to another server, such as the new primary. Here it is another database, whose
// notifications do not reach the one before either.
func TestTheListenerFollowsTheOthers(t *testing.T) {
	t.Parallel()
	first, second := postgrestest.URL(t), postgrestest.URL(t)
	other := open(t, second)
	admin := client(t, first)
	const name = `SELECT current_database()::text`
	databases := []string{scan[string](t, admin, name), scan[string](t, client(t, second), name)}
	var moved atomic.Int32
	logger, logged := locktest.NewLog()
	l, err := openWith(bounded(t), t, first, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, dial *pgx.ConnConfig) error {
			dial.Database = databases[moved.Load()]
			return nil
		}
	}, WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	woken := wakeupsOf(t, l, "job", "w")
	held := acquire(t, other, request("job", "a"))
	moved.Store(1)
	run(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query NOT LIKE 'LISTEN%'`)
	postgrestest.WaitFor(t, "the lock is asked for in the other database", func() bool {
		_, err := l.TryAcquire(bounded(t), waiting("job", "b", "w"))
		return errors.Is(err, driver.ErrHeld)
	})
	wantWakeup(t, woken, driver.WakingBegan) // again
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 || !strings.Contains(logged.String(), errMoved.Error()) {
		t.Errorf("logged: %s", logged)
	}
	if err := other.Release(bounded(t), held); err != nil {
		t.Fatal(err)
	}
	wantWakeup(t, woken, driver.MayBeFree)
}

// writeCertificate writes a certificate of an authority.
func writeCertificate(t *testing.T, path string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(fmt.Errorf("certificate %d: %w", serial, err))
	}
}
