package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// fixed opens a Locker on a server whose clock the test moves.
func fixed(t *testing.T) (*Locker, *kubernetestest.Server, *locktest.Clock) {
	t.Helper()
	server, clock := kubernetestest.Start(t), locktest.NewClock()
	server.SetClock(clock.Now)
	began := clock.Now()
	return open(t, server.URL(t), func(c *settings) { c.elapsed = func() time.Duration { return clock.Now().Sub(began) } }), server, clock
}

func acquire(t *testing.T, l *Locker, name, id string, ttl time.Duration) driver.Lease {
	t.Helper()
	lease, err := try(t, l, name, id, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func try(t *testing.T, l *Locker, name, id string, ttl time.Duration) (driver.Lease, error) {
	t.Helper()
	return l.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "host-" + id, TTL: ttl})
}

// kubectl and client-go's electors read the holder of a lock, for how long it has it, and that each renewal has changed the Lease.
func TestFields(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	lease := acquire(t, l, "billing", "a", 29500*time.Millisecond)
	first := leaseAt(server, "billing")
	if got, want := first.Spec.holder(), fmt.Sprintf("host-a_%d", lease.Token); got != want {
		t.Errorf("holderIdentity is %q, want %q", got, want)
	}
	// 30 s for the TTL, and those for which renewals may not show.
	if s := first.Spec; s.seconds() != 37 || s.AcquireTime == nil || s.RenewTime == nil || *s.LeaseTransitions != 0 {
		t.Errorf("the fields are %s", server.Lease("billing"))
	}
	if uint64(clock.Now().Truncate(time.Second).UnixMilli()) > lease.Token {
		t.Errorf("the token %d is less than the server's milliseconds", lease.Token)
	}
	last := first
	for i := range 5 { // the clock stands still
		var err error
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		now := leaseAt(server, "billing")
		if now.Spec.RenewTime.equal(last.Spec.RenewTime) || now.Spec.seconds() != 37 {
			t.Errorf("renewal %d has not changed renewTime: %s", i, server.Lease("billing"))
		}
		if !now.Spec.AcquireTime.equal(first.Spec.AcquireTime) || now.Spec.holder() != first.Spec.holder() {
			t.Errorf("renewal %d has changed the grant: %s", i, server.Lease("billing"))
		}
		last = now
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if s := leaseAt(server, "billing").Spec; s.holder() != "" || s.seconds() != 1 || *s.LeaseTransitions != 0 {
		t.Errorf("after the release the fields are %s", server.Lease("billing"))
	}
	for i := range 3 {
		again := acquire(t, l, "billing", fmt.Sprint("b", i), 30*time.Second)
		if s := leaseAt(server, "billing").Spec; *s.LeaseTransitions != int64(i+1) {
			t.Errorf("leaseTransitions is %d after %d grants", *s.LeaseTransitions, i+2)
		}
		if again.Token <= lease.Token {
			t.Errorf("the token %d came after %d", again.Token, lease.Token)
		}
		lease = again
		if err := l.Release(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
}

// elect writes the fields of a Lease as client-go's elector does.
func elect(t *testing.T, server *kubernetestest.Server, name, identity string, renewed time.Time, seconds int) {
	t.Helper()
	text := renewed.UTC().Format(microTime)
	if err := server.Edit(name, fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "acquireTime": %q, "renewTime": %q,
		"leaseTransitions": 7}}`, identity, seconds, text, text)); err != nil {
		t.Fatal(err)
	}
}

// An elector that has the Lease is respected until its lease has ended by the server's clock. Its own clock, which writes renewTime, may be
// wrong.
func TestElectorHolds(t *testing.T) {
	t.Parallel()
	for what, wrong := range map[string]time.Duration{"right": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour} {
		l, server, clock := fixed(t)
		lease := acquire(t, l, "op", "a", 10*time.Second)
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		elect(t, server, "op", "pod-1_uuid", clock.Now().Add(wrong), 15)
		_, err := try(t, l, "op", "b", 10*time.Second)
		var held *driver.HeldError
		if !errors.As(err, &held) || held.Record.Owner != "pod-1_uuid" {
			t.Errorf("%s: %v", what, err)
		}
		clock.Advance(14 * time.Second)
		elect(t, server, "op", "pod-1_uuid", clock.Now().Add(wrong), 15) // it renews
		clock.Advance(14 * time.Second)
		if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: 14 s after the renewal: %v", what, err)
		}
		if err := server.EditAs("kubectl-label", "op", `{"metadata": {"labels": {"team": "a"}}}`); err != nil { // no renewal
			t.Fatal(err)
		}
		clock.Advance(4 * time.Second)
		next := acquire(t, l, "op", "b", 10*time.Second)
		if s := leaseAt(server, "op").Spec; !strings.HasPrefix(s.holder(), "host-b_") || *s.LeaseTransitions != 8 || next.Token <= lease.Token {
			t.Errorf("%s: taken over with the token %d after %d: %s", what, next.Token, lease.Token, server.Lease("op"))
		}
		elect(t, server, "op", "pod-2_uuid", clock.Now(), 15) // whatever made it win
		if _, err := l.Renew(t.Context(), next); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: a renewal after an elector's: %v", what, err)
		}
		if err := server.Edit("op", `{"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}`); err != nil { // ReleaseOnCancel
			t.Fatal(err)
		}
		if last := acquire(t, l, "op", "c", 10*time.Second); last.Token <= next.Token {
			t.Errorf("%s: the token %d after %d", what, last.Token, next.Token)
		}
	}
}

// An elector that has lost the Lease, and does not know it, may release it under the lock that has it now. That frees nothing.
func TestElectorReleasesALock(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	first := acquire(t, l, "op", "a", 10*time.Second)
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, "op", "b", 10*time.Second)
	clock.Advance(time.Second)
	text := clock.Now().UTC().Format(microTime)
	if err := server.Edit("op", fmt.Sprintf(`{"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": %q, "renewTime": %q,
		"leaseTransitions": 1}}`, text, text)); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, l, "op", "c", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("released by an elector that has lost it: %v", err)
	}
	lease, err := l.Renew(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	if s := leaseAt(server, "op").Spec; !strings.HasPrefix(s.holder(), "host-b_") || s.seconds() != 17 {
		t.Errorf("after the next renewal the fields are %s", server.Lease("op"))
	}
	clock.Advance(12 * time.Second)
	if next := acquire(t, l, "op", "c", 10*time.Second); next.Token <= lease.Token {
		t.Errorf("the token %d after %d", next.Token, lease.Token)
	}
}

// Tokens rise also if the Lease is deleted within the same second of the server's clock, and if an elector makes it anew.
func TestTokensAfterADeletion(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	var last uint64
	for i := range 6 {
		lease := acquire(t, l, "op", fmt.Sprint(i), 10*time.Second)
		if lease.Token <= last {
			t.Errorf("the token %d came after %d", lease.Token, last)
		}
		last = lease.Token
		if !server.Delete("op") {
			t.Fatal("there is no Lease")
		}
		if i%2 == 0 { // an elector that has released
			if err := server.Create("op", `{"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}`); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A person may write a holder alone, without a duration and times. Such a Lease is held, and is taken over after an observation.
func TestHolderAlone(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	if err := server.Create("op", `{"spec": {"holderIdentity": "somebody"}}`); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside a holder without times: %v", err)
	}
	r, err := l.Inspect(t.Context(), "op")
	if err != nil || r.Owner != "somebody" || r.TTL != time.Second {
		t.Errorf("%q has it for %v, %v", r.Owner, r.TTL, err)
	}
	if _, err := l.TryAcquire(t.Context(), driver.Request{Name: "op", ID: driver.NewLeaseID("b"), Owner: "b", TTL: 10 * time.Second,
		Replace: r.Revision}); err != nil {
		t.Errorf("taken over after an observation: %v", err)
	}
}

// electors is the Lease of an elector whose clock is wrong.
const electors = `{"spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}}`

// The Lease of an elector that has never been a lock's is respected, too, and is a lock from the first grant on.
func TestElectorsLease(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	lease := acquire(t, l, "op", "a", 10*time.Second)
	if !server.Delete("op") || server.Edit("op", "{}") == nil {
		t.Fatal("the Lease was not deleted")
	}
	if err := server.Create("op", electors); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside an elector: %v", err)
	}
	clock.Advance(17 * time.Second)
	next := acquire(t, l, "op", "b", 10*time.Second)
	if next.Token <= lease.Token {
		t.Errorf("the token %d after %d", next.Token, lease.Token)
	}
	if names := list(t, l); len(names) != 1 || names[0] != "op" {
		t.Errorf("the locks are %q", names)
	}
}

// Without a stamp of the server nobody knows how old an elector's renewal is. So it is observed for its whole duration.
func TestElectorWithoutStamps(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	server.SetStamps(nil)
	if err := server.Create("op", electors); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("taken over without any observation: %v", err)
	}
	r, err := l.Inspect(t.Context(), "op")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Edit("op", `{"spec": {"renewTime": "2020-01-01T00:00:02.000000Z"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), driver.Request{Name: "op", ID: driver.NewLeaseID("b"), Owner: "b", TTL: 10 * time.Second,
		Replace: r.Revision}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("taken over from an elector that has renewed: %v", err)
	}
	if r, err = l.Inspect(t.Context(), "op"); err != nil {
		t.Fatal(err)
	}
	// A waiter that has seen no change for the whole duration says so by Replace.
	if _, err := l.TryAcquire(t.Context(), driver.Request{Name: "op", ID: driver.NewLeaseID("b"), Owner: "b", TTL: 10 * time.Second,
		Replace: r.Revision}); err != nil {
		t.Errorf("taken over after an observation: %v", err)
	}
}

// The locks of two prefixes have nothing to do with each other, and the Leases of others are none.
func TestPrefix(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	at := server.URL(t)
	one, two, bare := open(t, at+"&prefix=team-a."), open(t, at, WithPrefix("team-b-")), open(t, at)
	if err := server.Create("node-1", `{"spec": {"holderIdentity": "kubelet", "leaseDurationSeconds": 40}}`); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Locker{one, two, bare} {
		acquire(t, l, "Jobs/nightly", "a", 30*time.Second)
		acquire(t, l, "x", "a", 30*time.Second)
		if names := list(t, l); strings.Join(names, " ") != "Jobs/nightly x" {
			t.Errorf("the locks are %q", names)
		}
	}
	want := "node-1 team-a.x team-a.x--4aobs--2fnightly team-b-x team-b-x--4aobs--2fnightly x x--4aobs--2fnightly"
	if got := strings.Join(server.Names(), " "); got != want {
		t.Errorf("the Leases are\n%s, want\n%s", got, want)
	}
}

func list(t *testing.T, l *Locker) (names []string) {
	t.Helper()
	for r, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		names = append(names, r.Name)
	}
	return names
}

// A list of many Leases has all pages.
func TestPages(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	lease := acquire(t, l, "a", "a", 30*time.Second)
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	record := annotationOf(server, "a")
	for i := range 2*pageSize + 10 {
		name := fmt.Sprintf("n%04d", i)
		if err := server.Create(name, fmt.Sprintf(`{"metadata": {"labels": {%q: "true"}, "annotations": {%q: %s}}}`, label, Annotation,
			quoted(strings.Replace(record, `"name":"a"`, `"name":"`+name+`"`, 1)))); err != nil {
			t.Fatal(err)
		}
	}
	// A copy of a lock's Lease is no lock.
	if err := server.Create("copy", fmt.Sprintf(`{"metadata": {"labels": {%q: "true"}, "annotations": {%q: %s}}}`, label, Annotation,
		quoted(record))); err != nil {
		t.Fatal(err)
	}
	before := server.Requests("list")
	if names := list(t, l); len(names) != 2*pageSize+11 || names[0] != "a" || names[2*pageSize+10] != "n0509" {
		t.Errorf("%d names: %.3q", len(names), names)
	}
	if n := server.Requests("list") - before; n != 3 {
		t.Errorf("%d requests for three pages", n)
	}
	expired := 0
	server.SetFaults(func(kubernetestest.Request) kubernetestest.Fault {
		expired++
		return kubernetestest.Fault{Expired: expired == 2}
	})
	if names := list(t, l); len(names) != 2*pageSize+11 {
		t.Errorf("%d names after the token of a page had expired", len(names))
	}
}

// The costs that the page names.
func TestRequests(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	count := func(what string, want map[string]int, call func()) {
		t.Helper()
		before := map[string]int{}
		for _, verb := range append([]string{"update", "delete"}, verbs...) {
			before[verb] = server.Requests(verb)
		}
		call()
		for verb, n := range before {
			if got := server.Requests(verb) - n; got != want[verb] {
				t.Errorf("%s: %d requests %s, want %d", what, got, verb, want[verb])
			}
		}
	}
	var lease driver.Lease
	count("a first grant", map[string]int{"get": 1, "list": 1, "create": 1}, func() { lease = acquire(t, l, "n", "a", 30*time.Second) })
	renew := func() {
		var err error
		if lease, err = l.Renew(context.WithoutCancel(t.Context()), lease); err != nil {
			t.Error(err)
		}
	}
	count("a renewal", map[string]int{"patch": 1}, renew)
	count("a refusal", map[string]int{"get": 1}, func() { _, _ = try(t, l, "n", "b", 30*time.Second) })
	count("a release", map[string]int{"patch": 1}, func() {
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
	})
	count("a grant", map[string]int{"get": 1, "patch": 1}, func() { acquire(t, l, "n", "c", 30*time.Second) })
}

// Many records are read by pages, also those of electors' Leases, and of names without a Lease.
func TestBatch(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	if err := server.Create("op", electors); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, "held", "a", 30*time.Second)
	names := []string{"op", "held"}
	for i := range 98 {
		names = append(names, fmt.Sprint("absent-", i))
	}
	lists, gets := server.Requests("list"), server.Requests("get")
	records, errs := l.InspectBatch(t.Context(), "", names)
	for i, r := range records {
		want := driver.StateFree
		if i < 2 {
			want = driver.StateHeld
		}
		if errs[i] != nil || r.State != want || r.Name != names[i] {
			t.Errorf("%s: %v, %v", names[i], r.State, errs[i])
		}
	}
	if lists, gets = server.Requests("list")-lists, server.Requests("get")-gets; lists != 1 || gets != 0 {
		t.Errorf("%d lists and %d gets for 100 names", lists, gets)
	}
}
