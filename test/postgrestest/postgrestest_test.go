package postgrestest

import (
	"context"
	"errors"
	"os"
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

func TestProvidedPrograms(t *testing.T) {
	t.Setenv(testservers.EnvPostgresBin, t.TempDir())
	if _, err := testservers.PostgresBin.Path(t.Context()); err == nil || !strings.Contains(err.Error(), testservers.EnvPostgresBin+": ") {
		t.Errorf("got %v", err)
	}
}
