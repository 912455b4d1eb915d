package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// throughGate returns a URL that leads through a gate.
func throughGate(t *testing.T, direct string) (*locktest.Gate, string) {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	g := locktest.NewGate(t, net.JoinHostPort(u.Hostname(), u.Port()))
	u.Host = g.Addr
	return g, u.String()
}

// A call that gets no connection has sent nothing.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	g, at := throughGate(t, postgrestest.URL(t))
	l := open(t, at)
	l.pool.Reset() // a connection that was cut would be tried, and the outcome be unknown
	g.CheckDeadAddress(t, l, 5*time.Second)
}

// A connection that is cut after the statement leaves the outcome unknown, although none can be made after it.
func TestLostAnswerIsInDoubt(t *testing.T) {
	t.Parallel()
	direct := postgrestest.URL(t)
	g, at := throughGate(t, direct)
	l, other := open(t, at), open(t, direct)
	g.CheckLostAnswer(t, l, other, request("lost answer", "a"))
}

// An acquire that gets no connection before its context or its time limit ends has sent nothing, and blames no server for it.
func TestAcquireWithoutAConnectionIsNotSent(t *testing.T) {
	t.Parallel()
	l := open(t, with(postgrestest.URL(t), "commandTimeout=2s"))
	for range cap(l.slots.quick) {
		l.slots.quick <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, short := l.TryAcquire(ctx, request("busy", "a"))
	_, long := l.TryAcquire(t.Context(), request("busy", "b"))
	for range cap(l.slots.quick) {
		<-l.slots.quick
	}
	for _, err := range []error{short, long} {
		if !driver.NotSent(err) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no connection was free") {
			t.Errorf("%v: not sent: %v", err, driver.NotSent(err))
		}
	}
}

// It stays so where the error also names who keeps the row locked, and perhaps the connections busy.
func TestUnsentAcquireNamesWhoBlocks(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, with(at, "commandTimeout=2s"))
	if err := l.Release(bounded(t), acquire(t, l, request("job", "a"))); err != nil {
		t.Fatal(err)
	}
	_, pid := console(t, at, `SELECT FROM holdfast_locks WHERE name = 'job' FOR UPDATE`)
	for range cap(l.slots.quick) {
		l.slots.quick <- struct{}{}
	}
	_, err := l.TryAcquire(t.Context(), request("job", "b"))
	for range cap(l.slots.quick) {
		<-l.slots.quick
	}
	wantNamed(t, "the request", fmt.Sprint(err), pid)
	if !driver.NotSent(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: not sent: %v", err, driver.NotSent(err))
	}
}
