package oldlocks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// lateOld is an old lock whose releases come again, after each grant.
type lateOld struct {
	migrating.Old
	mu       sync.Mutex
	released map[string][]migrating.Claim
}

func (l *lateOld) Release(ctx context.Context, c migrating.Claim) error {
	l.mu.Lock()
	l.released[c.Name] = append(l.released[c.Name], c)
	l.mu.Unlock()
	return l.Old.Release(ctx, c)
}

func (l *lateOld) Acquire(ctx context.Context, c migrating.Claim) error {
	err := l.Old.Acquire(ctx, c)
	l.mu.Lock()
	again := l.released[c.Name]
	l.mu.Unlock()
	for _, c := range again[max(0, len(again)-3):] {
		if err := l.Old.Release(ctx, c); err != nil {
			return err
		}
	}
	return err
}

// plain is a Locker without a queue, as the driver for DynamoDB is.
type plain struct{ driver.Locker }

func (p plain) Capabilities() driver.Capabilities {
	c := p.Locker.Capabilities()
	return driver.Capabilities{Lister: c.Lister, DataStore: c.DataStore}
}

// A row of the old clients and a new lock keep the contract of one lock, also if releases arrive again, and late.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, java := range []bool{false, true} {
		t.Run(fmt.Sprint("java ", java), func(t *testing.T) {
			t.Parallel()
			server, clock := start(t), locktest.NewClock()
			began := clock.Now()
			// Without histories: an Inspect, which is of the new lock alone, does not begin to observe the old one.
			store := memory.NewStore(memory.WithClock(clock.Now), memory.WithHistory(0))
			var late lockertest.LateReleases
			lockertest.Run(t, lockertest.Config{
				New: func(t *testing.T) driver.Locker {
					l := newLock(t, configFor(server.Endpoint()), tableOf(java), func() time.Duration { return clock.Now().Sub(began) })
					both, err := migrating.New(late.Locker(plain{store.Locker()}), &lateOld{Old: l, released: map[string][]migrating.Claim{}})
					if err != nil {
						t.Fatal(err)
					}
					return both
				},
				Advance: clock.Advance,
				Secrets: []string{dynamodbtest.KeyID, dynamodbtest.Secret, dynamodbtest.SessionToken},
				Without: []string{"Damage", "Deny", "FailOver", "Forget", "Stall"}, // no clause is about half a lock
			})
		})
	}
}

// A program with both locks and one with the old lock alone exclude each other.
func TestRollout(t *testing.T) {
	t.Parallel()
	server := start(t)
	var c clock
	both, err := migrating.New(memory.New(), newLock(t, configFor(server.Endpoint()), byGo, c.now))
	if err != nil {
		t.Fatal(err)
	}
	client, err := holdfast.New(both)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	waiter := newOld(t, configFor(server.Endpoint()), c.now)
	hold, err := client.TryLock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := waiter.tryLock(t.Context(), "job"); got || err != nil {
		t.Errorf("beside a migrated program: %v, %v", got, err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := waiter.tryLock(t.Context(), "job"); !got || err != nil {
		t.Errorf("after a migrated program: %v, %v", got, err)
	}
	if _, err := client.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("beside an old program: %v", err)
	}
	if err := waiter.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hold, err = client.TryLock(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// program competes for one lock.
type program interface {
	// step does what comes to its mind. It is never called again while it runs.
	step(ctx context.Context)
	holds() bool
	String() string
}

// world has programs that compete, in virtual time, on one goroutine: while one waits for an answer, others go on, and time passes.
type world struct {
	clock    clock
	rnd      *rand.Rand
	programs []program
	busy     map[program]bool
	networks []*network
	depth    int
	counts   map[string]int
}

func (w *world) of(n int) bool { return w.rnd.IntN(n) == 0 }

// pass lets some time pass: mostly little, and now and then more than a lease.
func (w *world) pass() {
	d := time.Duration(w.rnd.Int64N(int64(lease / 8)))
	if w.of(40) {
		d += time.Duration(w.rnd.Int64N(int64(2 * lease)))
	}
	w.clock.advance(d)
}

// fate is what a network does with a request, before which others go on.
func (w *world) fate(t *testing.T) func(string) fate {
	return func(string) fate {
		if w.pass(); w.of(3) && w.depth < 4 {
			w.step(t)
		}
		if w.of(4) {
			return fate(w.rnd.IntN(int(late) + 1))
		}
		return pass
	}
}

// step lets one program go on, and checks that one holds the lock at most.
func (w *world) step(t *testing.T) {
	w.depth++
	defer func() { w.depth-- }()
	w.pass()
	if n := w.networks[w.rnd.IntN(len(w.networks))]; len(n.held) > 0 && w.of(2) {
		if err := n.arrive(w.rnd.IntN(len(n.held))); err != nil {
			t.Fatal(err)
		}
	}
	if p := w.programs[w.rnd.IntN(len(w.programs))]; !w.busy[p] {
		w.busy[p] = true
		before := p.holds()
		p.step(t.Context())
		w.busy[p] = false
		if !before && p.holds() {
			w.counts[strings.Fields(p.String())[0]]++
		}
	}
	var holders []string
	for _, p := range w.programs {
		if p.holds() {
			holders = append(holders, p.String())
		}
	}
	if len(holders) > 1 {
		t.Fatalf("after %v the lock is held by %v", w.clock.now(), holders)
	}
}

// oldProgram is a program that is not migrated.
type oldProgram struct {
	*oldClient
	w *world
}

func (p *oldProgram) String() string { return "old " + p.owner }

func (p *oldProgram) step(ctx context.Context) {
	switch {
	case p.held == nil:
		_, _ = p.tryLock(ctx, "job")
	case !p.holds() || p.w.of(8): // it dies, and starts anew
		p.held = nil
	case p.w.of(3):
		_ = p.release(ctx)
	default:
		_ = p.heartbeat(ctx)
	}
}

// newProgram is a program that is migrated, as the library uses an old lock.
type newProgram struct {
	*DynamoLock
	w     *world
	name  string
	n     int
	claim *migrating.Claim
	began time.Duration // the last request that gave it a lease, by its own clock
	sure  bool
}

func (p *newProgram) String() string { return "new " + p.name }

func (p *newProgram) holds() bool { return p.sure && p.elapsed()-p.began < p.claim.TTL }

func (p *newProgram) step(ctx context.Context) {
	began := p.elapsed()
	switch {
	case p.claim == nil || !p.sure: // also once more, after an error
		if p.claim == nil {
			p.n++
			p.claim = &migrating.Claim{Name: "job", Owner: p.name, Proof: fmt.Sprintf("%s%031d", p.name, p.n), TTL: lease}
		}
		switch err := p.Acquire(ctx, *p.claim); {
		case err == nil:
			p.sure, p.began = true, began
		case errors.Is(err, driver.ErrHeld):
			p.claim = nil
		case p.w.of(2):
			_ = p.Release(ctx, *p.claim)
			p.claim = nil
		}
	case !p.holds() || p.w.of(8): // it dies, and starts anew, or its release is late
		p.sure = false
		if p.w.of(2) {
			_ = p.Release(ctx, *p.claim)
		}
		p.claim = nil
	case p.w.of(3):
		p.sure = false
		_ = p.Release(ctx, *p.claim)
		p.claim = nil
	default:
		switch err := p.Renew(ctx, *p.claim); {
		case err == nil:
			p.began = began
		case errors.Is(err, driver.ErrLost):
			p.sure, p.claim = false, nil
		}
	}
}

// Old and migrated programs compete, renew, die with the lock, and are paused, through a network that loses, delays and doubles requests.
// The clocks of migrated ones run at other rates. Never do two of them hold the lock.
func TestOldAndMigratedProgramsCompete(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	counts := map[string]int{}
	for seed := range seeds {
		server := start(t)
		w := &world{rnd: rand.New(rand.NewPCG(seed, 7)), busy: map[program]bool{}, counts: counts} //nolint:gosec // a test repeats it
		network := func() *network {
			n := newNetwork(t)
			w.networks = append(w.networks, n)
			return n
		}
		java := seed%2 == 1
		for i := range 3 {
			n := network()
			client := newOld(t, n.config(server.Endpoint()), w.clock.now)
			client.owner, client.java, client.deletes, client.inPlace = fmt.Sprint("host", i), java, i == 1, java && i == 2
			w.programs = append(w.programs, &oldProgram{client, w})
			n.before = w.fate(t)
		}
		for i := range 3 {
			n := network()
			offset, drift := time.Duration(i)*time.Hour, int64(i-1)*2001 // up to 1/2001
			l := newLock(t, n.config(server.Endpoint()), tableOf(java), func() time.Duration {
				now := w.clock.now()
				if drift != 0 {
					now += now / time.Duration(drift)
				}
				return offset + now
			})
			w.programs = append(w.programs, &newProgram{DynamoLock: l, w: w, name: string(rune('a' + i))})
			n.before = w.fate(t)
		}
		for range 250 {
			w.step(t)
		}
		if t.Failed() {
			t.Fatalf("with the seed %d", seed)
		}
	}
	if t.Logf("holds: %v", counts); counts["old"] < int(seeds)*5 || counts["new"] < int(seeds)*5 {
		t.Errorf("holds: %v", counts)
	}
}

// Another implementation of the protocol understands the requests, and answers as the server of the tests does.
func TestMoto(t *testing.T) {
	t.Parallel()
	config := configFor(dynamodbtest.StartMoto(t).Endpoint())
	config.Region = "eu-central-1"
	var c clock
	holder := newOld(t, config, c.now)
	for name, key := range map[string][]string{old: {"key"}, "sorted": {"id", "sort"}} {
		d := described(key...)
		if err := holder.at.Ask(t.Context(), "CreateTable", map[string]any{"TableName": name, "BillingMode": "PAY_PER_REQUEST",
			"AttributeDefinitions": d["AttributeDefinitions"], "KeySchema": d["KeySchema"]}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []Table{byGo, {Name: "sorted", SortKey: "a", Client: Java}} {
		l := newLock(t, config, table, c.now)
		ours := claim("job", "a")
		for what, call := range map[string]func() error{
			"make":   func() error { return l.Acquire(t.Context(), ours) },
			"repeat": func() error { return l.Acquire(t.Context(), ours) },
			"renew":  func() error { return l.Renew(t.Context(), ours) },
		} {
			if err := errors.Join(l.Acquire(t.Context(), ours), call()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := l.Acquire(t.Context(), claim("job", "b")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("held: %v", err)
		}
		c.advance(2 * lease)
		if err := l.Acquire(t.Context(), claim("job", "b")); err != nil {
			t.Errorf("over: %v", err)
		}
		if err := l.Renew(t.Context(), ours); !errors.Is(err, driver.ErrLost) {
			t.Errorf("taken over: %v", err)
		}
		if err := errors.Join(l.Release(t.Context(), claim("job", "b")), l.Acquire(t.Context(), ours), l.Release(t.Context(), ours)); err != nil {
			t.Errorf("released: %v", err)
		}
	}
	l := newLock(t, config, byGo, c.now)
	for _, deletes := range []bool{false, true} {
		holder.deletes = deletes
		if got, err := holder.tryLock(t.Context(), "job"); !got || err != nil {
			t.Fatalf("an old program: %v, %v", got, err)
		}
		if err := l.Acquire(t.Context(), claim("job", "c")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside an old program: %v", err)
		}
		if err := errors.Join(holder.heartbeat(t.Context()), holder.release(t.Context()), l.Acquire(t.Context(), claim("job", "c"))); err != nil {
			t.Errorf("after an old program: %v", err)
		}
		if got, err := holder.tryLock(t.Context(), "job"); got || err != nil {
			t.Errorf("an old program beside a migrated one: %v, %v", got, err)
		}
		c.advance(2 * lease)
		if got, err := holder.tryLock(t.Context(), "job"); !got || err != nil {
			t.Errorf("an old program after a migrated one: %v, %v", got, err)
		}
		if err := holder.release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
