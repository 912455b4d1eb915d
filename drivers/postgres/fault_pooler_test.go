package postgres

import (
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// execModes are the ways in which pgx sends statements. Poolers know protocol prepared statements of one connection only.
var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// The conformance suite through a pooler that gives each transaction another connection. The Locker listens past it,
// without which nothing would wake waiters.
func TestConformanceTransactionPooling(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	suite(t, postgrestest.PgBouncer(t, s, postgrestest.TransactionMode).At(t, at)+"&listen="+url.QueryEscape(at), at)
}

// Every call works through a pooler in each of its modes, in every way in which pgx sends statements. Two Lockers use
// connections in turn, so that the pooler gives them other ones each time.
func TestPoolerAndExecModes(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	for _, mode := range []string{postgrestest.SessionMode, postgrestest.TransactionMode, postgrestest.StatementMode} {
		pooler := postgrestest.PgBouncer(t, s, mode).At(t, at)
		for _, exec := range execModes {
			t.Run(mode+" "+exec, func(t *testing.T) {
				through := pooler + "&default_query_exec_mode=" + exec
				l, other := open(t, through), open(t, through)
				for name, op := range operations() {
					key := mode + " " + exec + " " + name
					op.prepare(t, l, key)
					acquire(t, other, request("other "+key, "x"))
					if err := op.call(bounded(t), l, key); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					checkFault(t, op, l, key, nil)
				}
			})
		}
	}
}

// A waiter is woken by a release, also where a pooler stands between, if it listens past the pooler or the pooler keeps
// connections. Otherwise nothing wakes it, which it is told, and it polls.
func TestPoolerAndWaking(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	direct := open(t, at)
	transaction := postgrestest.PgBouncer(t, s, postgrestest.TransactionMode).At(t, at)
	for name, c := range map[string]struct {
		through string
		wakes   bool
	}{
		"session":                    {postgrestest.PgBouncer(t, s, postgrestest.SessionMode).At(t, at), true},
		"transaction":                {transaction, false},
		"transaction, listen direct": {transaction + "&listen=" + url.QueryEscape(at), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, c.through)
			holder := acquire(t, direct, request(name, "a"))
			wakeups := make(chan driver.Wakeup, 100)
			defer l.Wake(name, waiterID, func(w driver.Wakeup) { wakeups <- w })()
			next := func(wanted driver.WakeupKind) {
				t.Helper()
				for {
					select {
					case w := <-wakeups:
						if w.Kind == driver.WakingBegan && !c.wakes {
							t.Error("told that releases wake it")
						}
						if w.Kind == wanted {
							return
						}
					case <-time.After(time.Minute):
						t.Fatalf("not told within a minute: kind %d", wanted)
					}
				}
			}
			req := request(name, "b")
			req.Waiter, req.QueueFor = waiterID, time.Minute
			if c.wakes {
				next(driver.WakingBegan)
			} else {
				next(driver.WakingEnded)
			}
			if _, err := l.TryAcquire(bounded(t), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			if err := direct.Release(bounded(t), holder); err != nil {
				t.Fatal(err)
			}
			if c.wakes {
				next(driver.MayBeFree)
			}
			acquire(t, l, req)
		})
	}
}

// Of several hosts in the URL for notifications the primary is used, in any order: a standby cannot listen.
func TestListenOnSeveralHosts(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	closeLocker(t, open(t, at))
	standby := server.Standby(t, true) // it has the database
	pooled := postgrestest.PgBouncer(t, server, postgrestest.TransactionMode).At(t, at)
	for _, listen := range []string{both(t, at, standby), both(t, standby.At(t, at), server)} {
		wantNotified(t, open(t, with(pooled, "listen="+queryEscape(listen))), listen)
	}
}

// A host that takes connections and never answers, as one that is frozen, keeps nobody from the next one.
func TestFrozenHost(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	frozen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Close() }()
	at := postgrestest.URL(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = frozen.Addr().String() + "," + u.Host
	for _, several := range []string{u.String(), with(at, "listen="+queryEscape(u.String()))} {
		wantNotified(t, open(t, several), several)
	}
}

// wantNotified checks that a release wakes a waiter.
func wantNotified(t *testing.T, l *Locker, name string) {
	t.Helper()
	holder := acquire(t, l, request(name, "holder"))
	woken := wakeupsOf(t, l, name, "w")
	wantHeld(t, l, waiting(name, "waiter", "w"))
	if err := l.Release(bounded(t), holder); err != nil {
		t.Fatal(err)
	}
	wantWakeup(t, woken, driver.MayBeFree)
}
