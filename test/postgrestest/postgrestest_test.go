package postgrestest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/testservers"
)

func TestMain(m *testing.M) { Main(m) }

const (
	create = "CREATE TABLE t (a int)"
	insert = "INSERT INTO t VALUES (1)"
	count  = "SELECT count(*) FROM t"
)

// Tests share a server, and each has a database of its own, whose user has no special rights.
func TestSharedServer(t *testing.T) {
	var wg sync.WaitGroup
	urls := make([]string, 3)
	for i := range urls {
		wg.Go(func() { urls[i] = URL(t) })
	}
	wg.Wait()
	for _, at := range urls {
		got := SQL(t, at, create, insert, count, "SELECT usesuper FROM pg_user WHERE usename = current_user")
		if got != "1\nf" && os.Getenv(EnvURL) == "" {
			t.Errorf("got %q", got)
		}
	}
	var dropped string
	t.Run("a test", func(t *testing.T) { dropped = URL(t) })
	if _, err := TrySQL(t.Context(), dropped, "SELECT 1"); err == nil {
		t.Error("the database of a test that has ended is still there")
	}
}

// The password is checked, and is in no error.
func TestWrongPassword(t *testing.T) {
	s := Start(t, Options{})
	u, err := url.Parse(s.AdminURL(""))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(AdminUser, "wrong-password")
	if _, err := TrySQL(t.Context(), u.String(), "SELECT 1"); err == nil || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("got %v", err)
	}
}

func TestKillStopPause(t *testing.T) {
	s := Start(t, Options{Settings: map[string]string{"max_connections": "17"}})
	at := s.Database(t)
	if got := SQL(t, at, create, "SHOW max_connections", "SHOW fsync"); got != "17\non" {
		t.Errorf("settings: %q", got)
	}
	backend := hold(t, at)
	for name, end := range map[string]func() error{"kill": s.Kill, "stop": s.Stop} {
		SQL(t, at, insert)
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		if _, err := os.Stat("/proc/" + backend); !errors.Is(err, os.ErrNotExist) && !isZombie(backend) {
			t.Errorf("%s: a backend is left", name)
		}
		if _, err := TrySQL(t.Context(), at, count); err == nil {
			t.Errorf("%s: the server answers", name)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(name, err)
		}
	}
	if got := SQL(t, at, count); got != "2" {
		t.Errorf("%s of 2 rows are left", got)
	}

	// The backend of an open connection is frozen too.
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := TrySQL(ctx, at, count); err == nil {
		t.Error("a paused server answered")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	SQL(t, at, count)
}

// hold opens a connection that stays in a statement, and returns the number of its backend.
func hold(t *testing.T, at string) (pid string) {
	t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { _, _ = TrySQL(ctx, at, "SELECT pg_sleep(600)") })
	t.Cleanup(func() { cancel(); wg.Wait() })
	WaitFor(t, "the backend sleeps", func() bool {
		pid = SQL(t, at, "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()")
		return pid != ""
	})
	return pid
}

func isZombie(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// A synchronous standby has what was committed when the primary dies.
func TestSynchronousStandby(t *testing.T) {
	s := Start(t, Options{})
	at := s.Database(t)
	standby := s.Standby(t, true)
	SQL(t, at, create, insert)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := TrySQL(t.Context(), standby.At(t, at), insert); err == nil {
		t.Error("a standby took a write")
	}
	standby.Promote(t)
	if got := SQL(t, standby.At(t, at), insert, count); got != "2" {
		t.Errorf("%s of 2 rows are left", got)
	}
}

// A commit waits for a synchronous standby that does not answer, and not for an asynchronous one, which can forget it.
func TestStandbyThatDoesNotAnswer(t *testing.T) {
	for _, sync := range []bool{true, false} {
		t.Run(strconv.FormatBool(sync), func(t *testing.T) {
			s := Start(t, Options{})
			at := s.Database(t)
			SQL(t, at, create)
			standby := s.Standby(t, sync)
			if err := standby.Pause(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := TrySQL(ctx, at, insert); (err != nil) != sync {
				t.Errorf("the insert: %v", err)
			}
			if sync {
				return
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := standby.Resume(); err != nil {
				t.Fatal(err)
			}
			standby.Promote(t)
			SQL(t, standby.At(t, at), insert)
		})
	}
}

func TestPgBouncer(t *testing.T) {
	s := Start(t, Options{})
	at := s.Database(t)
	SQL(t, at, create)
	for _, mode := range []string{SessionMode, TransactionMode, StatementMode} {
		t.Run(mode, func(t *testing.T) {
			through := PgBouncer(t, s, mode).At(t, at)
			SQL(t, through, insert)
			if _, err := TrySQL(t.Context(), through, "BEGIN", "COMMIT"); (err != nil) != (mode == StatementMode) {
				t.Errorf("a transaction: %v", err)
			}
		})
	}
	if got := SQL(t, at, count); got != "3" {
		t.Errorf("%s of 3 rows", got)
	}
}

func TestProvidedPrograms(t *testing.T) {
	t.Setenv(testservers.EnvPostgresBin, t.TempDir())
	if _, err := testservers.PostgresBin(t.Context()); err == nil || !strings.Contains(err.Error(), testservers.EnvPostgresBin+": ") {
		t.Errorf("got %v", err)
	}
}
