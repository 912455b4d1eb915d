package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A pooler in transaction or statement mode accepts LISTEN and delivers nothing. The Locker finds out, says so once, and
// its waiters poll. In session mode they are woken. Nobody adds default_query_exec_mode to the URL.
func TestPoolerModes(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	for mode, woken := range map[string]bool{
		postgrestest.SessionMode: true, postgrestest.TransactionMode: false, postgrestest.StatementMode: false,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pooled := postgrestest.PgBouncer(t, server, mode).At(t, server.Database(t))
			logger, logged := locktest.NewLog()
			l, other := open(t, pooled, WithLogger(logger)), open(t, pooled)
			kinds := make(chan driver.WakeupKind, 100)
			defer l.Wake("job", "w", func(up driver.Wakeup) { kinds <- up.Kind })()
			want := map[bool]driver.WakeupKind{true: driver.WakingBegan, false: driver.WakingEnded}[woken]
			select {
			case got := <-kinds:
				if got != want {
					t.Errorf("the waiter was notified of kind %d, want %d", got, want)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the waiter was not notified")
			}
			if l.follower.Usable() != woken || (strings.Count(logged.String(), "they poll") == 1) == woken {
				t.Errorf("waking works: %v, logged: %s", l.follower.Usable(), logged)
			}
			race(t, l, other)
		})
	}
}

// race has many requests for one lock at a time, and checks that one holds it at a time.
func race(t *testing.T, lockers ...*Locker) {
	t.Helper()
	var holders atomic.Int32
	var wg sync.WaitGroup
	var last atomic.Uint64
	for g := range 8 {
		wg.Go(func() {
			l := lockers[g%len(lockers)]
			for i, grants := 0, 0; grants < 3; i++ {
				lease, err := l.TryAcquire(bounded(t), request("race", fmt.Sprint("id", g, ".", i)))
				if err != nil {
					if !errors.Is(err, driver.ErrHeld) {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					continue
				}
				if holders.Add(1) != 1 {
					t.Error("two holders")
				}
				if before := last.Swap(lease.Token); before >= lease.Token {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				if _, err := l.Renew(bounded(t), lease); err != nil {
					t.Error(err)
				}
				grants++
				holders.Add(-1)
				if err := l.Release(bounded(t), lease); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// Under every default isolation level, in every mode of pgx, grants exclude each other and nobody gets an error.
func TestIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", `repeatable\ read`} {
		for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
			t.Run(level+"/"+mode, func(t *testing.T) {
				t.Parallel()
				at := with(postgrestest.URL(t), "options="+queryEscape("-c default_transaction_isolation="+level), "default_query_exec_mode="+mode)
				race(t, open(t, at), open(t, at))
			})
		}
	}
}
