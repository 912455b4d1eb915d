package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// both is the URL of two servers.
func both(t *testing.T, raw string, second *postgrestest.Server) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + second.Addr()
	return u.String()
}

// certain repeats a call until its outcome is certain.
func certain(t *testing.T, call func() error) error {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := call()
		if err == nil || driver.OutcomeKnown(err) {
			return err
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("still unknown after a minute: %v", err)
		}
	}
}

// A commit waits for a synchronous standby that does not answer, and the wait is ended: the server reports success with a
// warning. That is no grant, renewal or release: the standby can become the primary, and does not have it.
func TestWaitForStandbyEnds(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	standby := s.Standby(t, true)
	l := open(t, victim(t, at))
	control := client(t, s.AdminURL(""))
	for name, op := range operations() {
		if strings.HasSuffix(name, " the queue") {
			continue // see TestPositionsWaitForNoStandby
		}
		for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend", "context"} {
			t.Run(name+" "+end, func(t *testing.T) {
				key := name + " " + end
				op.prepare(t, l, key)
				if err := standby.Pause(); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := standby.Resume(); err != nil {
						t.Fatal(err)
					}
					if err := op.call(bounded(t), l, key); err != nil && !errors.Is(err, driver.ErrHeld) &&
						!errors.Is(err, driver.ErrConflict) { // it was written between the read and the write of this call
						t.Errorf("with the standby again: %v", err)
					}
				}()
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				wait := later(func() error { return op.call(ctx, l, key) })
				pid := waitsFor(t, control, "SyncRep")
				if end == "context" {
					cancel()
				} else {
					run(t, control, `SELECT `+end+`($1)`, pid)
				}
				wantUnknown(t, wait(t))
			})
		}
	}
}

// Positions in a queue may be forgotten by a fail-over: waiters poll, and enter again. So the next holder need not wait until a
// standby has them.
func TestPositionsWaitForNoStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	l := open(t, s.Database(t))
	standby := s.Standby(t, true)
	for name, op := range operations() {
		if !strings.HasSuffix(name, " the queue") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			op.prepare(t, l, name)
			if err := standby.Pause(); err != nil {
				t.Fatal(err)
			}
			err := op.call(bounded(t), l, name)
			if resumed := standby.Resume(); err != nil || resumed != nil {
				t.Errorf("with a standby that does not answer: %v, %v", err, resumed)
			}
			if r, err := l.Inspect(bounded(t), name); err != nil || !op.effect(t, l, r) {
				t.Errorf("afterwards %+v, %v", r, err)
			}
		})
	}
}

// A grant that waited in vain for the standby is not there after the fail-over, and was not reported as a success. Another
// gets the lock at once; what was granted before is held still, and tokens rise.
func TestFailOverToSynchronousStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	l := open(t, victim(t, at)) // makes the table
	standby := s.Standby(t, true)
	control := client(t, s.AdminURL(""))
	lockers := open(t, both(t, at, standby))
	if got := lockers.Info().Failover; got != driver.GrantsSurvive {
		t.Errorf("declared: %v", got)
	}
	before := acquire(t, lockers, request("granted", "a"))
	released := acquire(t, lockers, request("released", "a"))
	if err := lockers.Release(bounded(t), released); err != nil {
		t.Fatal(err)
	}
	if err := standby.Kill(); err != nil { // a paused one would find the writes in the buffers of its connection
		t.Fatal(err)
	}
	wait := later(func() error { return errOf(l.TryAcquire(bounded(t), request("unknown", "a"))) })
	run(t, control, `SELECT pg_cancel_backend($1)`, waitsFor(t, control, "SyncRep"))
	wantUnknown(t, wait(t))

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	// The connections to the primary end, with an unknown outcome.
	err := certain(t, func() error { return errOf(lockers.TryAcquire(bounded(t), request("granted", "b"))) })
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a lock that is held was granted: %v", err)
	}
	if err := certain(t, func() error { return errOf(lockers.Renew(bounded(t), before)) }); err != nil {
		t.Errorf("the lease from before: %v", err)
	}
	if after := acquire(t, lockers, request("released", "b")); after.Token <= released.Token {
		t.Errorf("token %d after %d", after.Token, released.Token)
	}
	acquire(t, lockers, request("unknown", "b"))
}

// An asynchronous standby that is behind forgets grants: so the driver declares. Tokens rise all the same.
func TestFailOverToAsynchronousStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	l := open(t, at)
	standby := s.Standby(t, false)
	if got := l.Info().Failover; got != driver.GrantsMayBeForgotten {
		t.Errorf("declared: %v", got)
	}
	known := acquire(t, l, request("lock", "known"))
	if err := l.Release(bounded(t), known); err != nil {
		t.Fatal(err)
	}
	onStandby := client(t, standby.At(t, at))
	postgrestest.WaitFor(t, "the standby has the first grant", func() bool {
		return scan[bool](t, onStandby, `SELECT EXISTS (SELECT FROM holdfast_locks WHERE name = 'lock' AND holder = '')`)
	})
	if err := standby.Kill(); err != nil { // a paused one would find the writes in the buffers of its connection
		t.Fatal(err)
	}
	var forgotten driver.Lease
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} { // the token of one who only counts would go back
		forgotten = acquire(t, l, request("lock", id))
		if id != "g" {
			if err := l.Release(bounded(t), forgotten); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	next := open(t, standby.At(t, at))
	if lease := acquire(t, next, request("lock", "h")); lease.Token <= forgotten.Token {
		t.Errorf("token %d after %d", lease.Token, forgotten.Token)
	}
	if _, err := next.Renew(bounded(t), forgotten); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the forgotten lease: %v", err)
	}
}

// The conformance suite with a fail-over: the primary is killed, and its synchronous standby becomes the primary.
func TestConformanceFailOver(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	standby := s.Standby(t, true)
	urls := both(t, at, standby)
	promoted := false
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker { return open(t, urls) },
		FailOver: func(ctx context.Context) error {
			if promoted { // it has no standby of its own
				return standby.Crash(ctx)
			}
			if err := s.Kill(); err != nil {
				return err
			}
			promoted = true
			_, err := postgrestest.TrySQL(ctx, standby.AdminURL(""), "SELECT pg_promote(true, 60)")
			return err
		},
		Without: []string{"Damage", "Deny", "Forget", "Stall"},
		Secrets: []string{postgrestest.AppPassword},
	})
}

// A grant has reached the disk when it is reported, whatever the defaults of the user, the database and the server are.
func TestGrantIsDurable(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	for _, set := range []string{"off", "local"} {
		t.Run(set, func(t *testing.T) {
			// Without these a write would reach the disk soon by itself.
			s := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{
				"synchronous_commit": set, "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB",
			}})
			at := s.Database(t)
			l := open(t, at)
			lease := acquire(t, l, request("lock", "a"))
			if _, err := l.Renew(bounded(t), driver.Lease{Name: lease.Name, ID: lease.ID, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, err := open(t, at).Inspect(bounded(t), "lock")
			if err != nil || r.State != driver.StateHeld || r.Token != lease.Token || r.Remaining < time.Minute {
				t.Errorf("after a crash: %+v, %v", r, err)
			}
		})
	}
}

// A server that is killed, or frozen, delays no call beyond its limit, and the lock works when it is back.
func TestServerDies(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	at := s.Database(t)
	l := open(t, at, WithCommandTimeout(2*time.Second))
	lease := acquire(t, l, request("lock", "a"))
	for name, fault := range map[string]struct{ begin, end func() error }{
		"killed":  {s.Kill, func() error { return s.Restart(t.Context()) }},
		"stopped": {s.Stop, func() error { return s.Restart(t.Context()) }},
		"frozen":  {s.Pause, s.Resume},
	} {
		if err := fault.begin(); err != nil {
			t.Fatal(name, err)
		}
		for range 3 {
			begin := time.Now()
			_, err := l.Renew(bounded(t), lease)
			wantUnknown(t, err)
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
			if err != nil && (strings.Contains(err.Error(), postgrestest.AppPassword) || errors.Is(err, context.Canceled)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := fault.end(); err != nil {
			t.Fatal(name, err)
		}
		if err := certain(t, func() error { return errOf(l.Renew(bounded(t), lease)) }); err != nil {
			t.Errorf("%s: not again: %v", name, err)
		}
	}
}
