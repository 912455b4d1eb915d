package oldlocks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/drivers/mysql"
	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func openNew(t *testing.T, at string) driver.Locker {
	t.Helper()
	l, err := mysql.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func openBoth(t *testing.T, locks driver.Locker, old migrating.Old) driver.Locker {
	t.Helper()
	l, err := migrating.New(locks, old)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A row of ShedLock and a new lock on the same server keep the contract of one lock, if the table can tell all names apart.
func TestConformance(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite")
	t.Parallel()
	db := pool(t, mysqltest.Shared(t).Addr())
	names := strings.Replace(readme, "name VARCHAR(64)", "name VARBINARY(1024)", 1)
	table, at := newTable(t, db, names), mysqltest.URL(t)
	var late lockertest.LateReleases
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openBoth(t, late.Locker(openNew(t, at)), newShedLock(t, db, table, noSkew))
		},
		Without: []string{"Damage", "Deny", "FailOver", "Forget", "Stall"}, // no clause is about half a lock
	})
}

// ttl is that of the programs that compete. It is short for the sake of those that die.
const ttl = 2 * time.Second

func work() { time.Sleep(rand.N(20 * time.Millisecond)) }
func rest() { time.Sleep(rand.N(200 * time.Millisecond)) } // so that others get the lock

// startBoth starts a program with both locks, which renews, and dies with the lock now and then.
func startBoth(ctx context.Context, t *testing.T, programs *sync.WaitGroup, held *spans, l driver.Locker, job, who string) {
	programs.Go(func() {
		var left []driver.Lease
		defer func() { // a process that dies keeps no session, and this one does
			for _, lease := range left {
				_ = l.Release(t.Context(), lease)
			}
		}()
		for n := 0; ctx.Err() == nil; n++ {
			req := driver.Request{Name: job, ID: driver.NewLeaseID(fmt.Sprint(who, "-", n)), Owner: who, TTL: ttl}
			asked := time.Now()
			lease, err := l.TryAcquire(t.Context(), req)
			from := time.Now()
			if err != nil {
				if !driver.OutcomeKnown(err) { // it may be held without an answer
					_ = l.Release(t.Context(), driver.Lease{Name: job, ID: req.ID})
				}
				work()
				continue
			}
			for again := rand.N(3); again > 0 && time.Since(asked) < ttl; again-- {
				work()
				next := time.Now()
				renewed, err := l.Renew(t.Context(), lease)
				if err != nil {
					break
				}
				lease, asked = renewed, next
			}
			work()
			held.add("both", fmt.Sprint(who, "-", n), from, asked, ttl)
			left = append(left, lease)
			for rand.N(4) > 0 && l.Release(t.Context(), lease) != nil && ctx.Err() == nil { // else it dies
			}
			rest()
		}
	})
}

// Old and migrated programs compete, extend and renew, and die with the lock, through a network that loses answers, delays and doubles.
// Never do two of them hold it.
func TestShedLockAndMigratedProgramsCompete(t *testing.T) {
	t.Parallel()
	addr := mysqltest.Shared(t).Addr()
	db := pool(t, addr)
	proxy := castest.NewProxy(t, addr)
	table, at := newTable(t, db, readme), mysqltest.URL(t)
	locks := openNew(t, at)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	held := &spans{counts: map[string]int{}, enough: cancel}
	var programs, faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			proxy.Set([]castest.Mode{castest.Pass, castest.LoseAnswers, castest.Pass, castest.Double, castest.Pass, castest.Stall}[i%6])
			select {
			case <-time.After(80 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		proxy.Set(castest.Pass)
	})
	for i := range 3 {
		faulty := newShedLock(t, pool(t, proxy.Addr(), "timeout=1s", "readTimeout=1s"), table, noSkew)
		startBoth(ctx, t, &programs, held, openBoth(t, locks, faulty), "job", fmt.Sprint("both", i))
		old := shedLock{db: db, table: table, host: fmt.Sprint("host", i), dbTime: true}
		programs.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				got, err := old.lock(t.Context(), "job", ttl)
				if err != nil || !got {
					work()
					continue
				}
				from := time.Now()
				for again := rand.N(3); again > 0; again-- {
					work()
					next := time.Now()
					if got, err := old.extend(t.Context(), "job", ttl); err == nil && got {
						asked = next
					}
				}
				work()
				held.add("old", old.host, from, asked, ttl)
				if rand.N(4) > 0 {
					if _, err := old.unlock(t.Context(), "job", 0); err != nil {
						t.Error(err)
					}
				}
				rest()
			}
		})
	}
	programs.Wait()
	faults.Wait()
	held.check(t)
}

// Programs that call GET_LOCK and migrated ones compete, and lose their sessions with the lock. Never do two of them hold it.
func TestGetLockAndMigratedProgramsCompete(t *testing.T) {
	t.Parallel()
	addr, job := mysqltest.Shared(t).Addr(), uniqueName()
	locks := openNew(t, mysqltest.URL(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	held := &spans{counts: map[string]int{}, enough: cancel}
	var programs sync.WaitGroup
	for i := range 3 {
		named, err := oldlocks.NewGetLock(pool(t, addr))
		if err != nil {
			t.Fatal(err)
		}
		startBoth(ctx, t, &programs, held, openBoth(t, locks, named), job, fmt.Sprint("both", i))
		db := pool(t, addr)
		programs.Go(func() {
			for ctx.Err() == nil {
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got := false
				if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK('"+job+"', 0)").Scan(&got); err != nil {
					t.Error(err)
				}
				if from := time.Now(); got {
					work()
					held.add("old", fmt.Sprint(i), from, time.Now(), ttl)
				}
				if rand.N(2) > 0 && got {
					if _, err := conn.ExecContext(t.Context(), "DO RELEASE_LOCK('"+job+"')"); err != nil {
						t.Error(err)
					}
					_ = conn.Close()
				} else {
					drop(conn)
				}
				rest()
			}
		})
	}
	programs.Wait()
	held.check(t)
}
