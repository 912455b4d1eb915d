package lockertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// suite has what the clauses share: two Lockers on one store, and its clock.
type suite struct {
	cfg          Config
	info         driver.Info
	capabilities driver.Capabilities
	one, two     driver.Locker
	ledger       *ledger
	ids          ids
	lacks        []lack
	soon         time.Duration // a call that takes longer than that beyond its limit is late; see soon
	ownLimit     time.Duration // the longest time limit that a method may set itself

	mu       sync.Mutex
	waiters  sync.Map // the driver.WaiterID of each Locker
	advanced time.Duration
	epoch    time.Time
	hung     int // clauses in which a call did not return
	leftOut  notChecked
	inPart   notChecked
}

// soon allows for a machine that stands still for some seconds. It is less than the ten seconds that drivers set themselves, so
// that a call which ends by its own limit alone is late.
const soon = 8 * time.Second

func newSuite(t *testing.T, cfg Config) *suite {
	t.Helper()
	if cfg.New == nil {
		t.Fatal("lockertest: Config.New is missing")
	}
	s, err := suiteOn(cfg.New(t), cfg.New(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// suiteOn makes a suite for two Lockers on one store.
func suiteOn(one, two driver.Locker, cfg Config) (*suite, error) {
	s := &suite{cfg: cfg, ledger: newLedger(cfg.Secrets), soon: soon, ownLimit: time.Minute, epoch: time.Now(), one: one, two: two}
	s.info, s.capabilities = s.one.Info(), s.one.Capabilities()
	if err := s.info.Validate(); err != nil {
		return nil, fmt.Errorf("lockertest: the driver does not declare what it promises: %w", err)
	}
	if s.cfg.TTL == 0 {
		s.cfg.TTL = s.allowed(time.Second)
	}
	if s.cfg.Slack == 0 {
		s.cfg.Slack = 10 * time.Second
	}
	if err := driver.ValidateTTL(s.cfg.TTL, s.info.Limits); err != nil {
		return nil, fmt.Errorf("lockertest: Config.TTL does not fit the driver's limits: %w", err)
	}
	s.lacks = s.findLacks()
	return s, nil
}

// allowed returns the shortest TTL of at least d that the limits allow, or else the longest
// that they allow.
func (s *suite) allowed(d time.Duration) time.Duration {
	d = max(d, s.info.Limits.MinTTL)
	if step := s.info.Limits.TTLStep; step > 0 && d%step != 0 {
		d += step - d%step
	}
	if longest := s.info.Limits.MaxTTL; longest > 0 && d > longest {
		d = longest
	}
	return d
}

// now reads the clock by which the suite waits.
func (s *suite) now() time.Time {
	if s.cfg.Advance == nil {
		return time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch.Add(s.advanced)
}

// pass lets d pass on the backend's clock.
func (s *suite) pass(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	if s.cfg.Advance != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cfg.Advance(d)
		s.advanced += d
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// tolerance is how much earlier a lease may end on the backend's clock than on the suite's.
// Clocks tick in steps and run at slightly different rates.
func (s *suite) tolerance(ttl time.Duration) time.Duration {
	if s.cfg.Advance != nil {
		return min(s.info.Limits.TTLStep, time.Millisecond)
	}
	return 10*time.Millisecond + ttl/50
}

// start runs a clause of a test.
func (s *suite) start(t *testing.T, c clause) *check {
	t.Helper()
	return s.launch(t.Context(), func(*check) driver.Locker { return s.cfg.New(t) }, c)
}

// launch runs a clause on a goroutine of its own, which closes done at its end. open makes another Locker on the store.
func (s *suite) launch(ctx context.Context, open func(*check) driver.Locker, c clause) *check {
	ctx, cancel := context.WithTimeout(ctx, clauseLimit)
	ck := &check{suite: s, open: open, clause: c.name, ctx: ctx, done: make(chan struct{}), calls: map[*pending]struct{}{}}
	ck.begin(theClause)
	ck.a, ck.b = ck.checked(s.one), ck.checked(s.two)
	go func() {
		defer close(ck.done)
		defer cancel()
		c.run(ck)
	}()
	return ck
}

// check is one run of a clause.
type check struct {
	*suite
	open   func(*check) driver.Locker
	clause string
	ctx    context.Context
	a, b   driver.Locker // two Lockers on the same store, whose answers are checked
	done   chan struct{}

	failing    sync.Mutex
	failures   []string
	unanswered int                   // of the failures, those that say only that a call was not answered
	calls      map[*pending]struct{} // of the driver, that have not returned
}
