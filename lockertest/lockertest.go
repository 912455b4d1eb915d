// Package lockertest is the conformance suite for implementations of [driver.Locker]. An
// implementation that passes can be used wherever Holdfast needs a Locker. A driver calls the
// suite from one test of its own:
//
//	func TestConformance(t *testing.T) {
//		store := memory.NewStore()
//		lockertest.Run(t, lockertest.Config{
//			New: func(*testing.T) driver.Locker { return store.Locker() },
//		})
//	}
//
// Each subtest is one clause of the contract. A failure quotes the clause that is broken and
// says what happened instead. In every clause the suite also checks each value and error that
// the driver returns:
//
//   - No error shows a lease ID or a secret.
//   - Each error names its operation and its lock, and has one meaning.
//   - No two IDs are granted the same token.
//   - A record is consistent, and shows nothing unknown as zero.
//
// Clauses that let a lease expire take real time, unless the test can set the driver's clock
// ([Config.Advance]). They run in parallel. A whole run takes a few seconds if a TTL may be
// 1 s, and about two minutes if it must be 15 s. A slow or busy machine causes no false
// failure: a grant fails a clause only if it came before the earliest moment at which it was
// allowed.
//
// With "go test -short" the suite leaves out the clauses that must wait for leases of more than a few seconds in real time, and
// those that stall such a backend. A run without -short belongs to every release of a driver.
package lockertest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Config describes the driver under test. Only New is required.
type Config struct {
	// New returns another Locker on the same store, as in another process. It closes the
	// Locker, and all else that it made, in t.Cleanup. Nothing else should use the store.
	// New is called about ten times.
	New func(t *testing.T) driver.Locker

	// Advance moves the clock by which the store judges expiry. It is for a driver whose
	// clock can be set and stands still otherwise. Without it the suite waits in real time.
	Advance func(d time.Duration)

	// Forget removes the record of a name without the driver, as an operator or a cleanup
	// job of a server does. Without it the clauses about removed records are left out.
	Forget func(ctx context.Context, name string) error

	// Stall makes the store stop answering calls about a name until resume is called, like a
	// stopped server or a blocked file. Without it the clauses about a hanging backend are
	// left out. No other clause runs at the same time.
	Stall func(ctx context.Context, name string) (resume func(), err error)

	// TTL of the leases that the suite lets expire. The default is the shortest TTL of at
	// least one second that the limits allow.
	TTL time.Duration

	// Slack is how long after a lease's end the backend may take to grant the lock to
	// another. The default is 10 s, which is enough for a busy machine, too.
	Slack time.Duration

	// RenewKeepsTTL says that the backend fixes a lease's length at the grant. A renewal
	// with a longer TTL then need not make it longer.
	RenewKeepsTTL bool

	// EndsUnknown says that the backend may lack the end of a tenure in its histories, and the time.
	EndsUnknown bool

	// Secrets are texts that no error may show, such as the password of the URL.
	Secrets []string
}

// Run checks a driver. It returns when all subtests have ended.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	s := newSuite(t, cfg)
	t.Run("Locker", func(t *testing.T) {
		var last []clause
		for _, c := range clauses() {
			switch {
			case c.needs != nil && !c.needs(s):
				t.Logf("left out, because the driver or the Config lacks what it needs: %s", c.name)
			case s.leftOutOfAShortRun(c):
				t.Logf("left out of a short run: %s", c.name)
			case c.alone:
				last = append(last, c)
			default:
				t.Run(c.name, func(t *testing.T) { s.run(t, c) })
			}
		}
		s.alone = last
	})
	for _, c := range s.alone {
		t.Run(c.name, func(t *testing.T) { s.run(t, c) })
	}
}

// longTTL is what a short run does not wait for.
const longTTL = 5 * time.Second

// leftOutOfAShortRun reports whether a clause takes so long in real time that "go test -short" leaves it out.
func (s *suite) leftOutOfAShortRun(c clause) bool {
	return testing.Short() && s.cfg.Advance == nil && s.cfg.TTL > longTTL && (c.waits || c.alone)
}

// run executes one clause. A clause that waits goes on while the next ones run: it is started
// before its subtest becomes parallel, since -parallel allows too few subtests at a time.
func (s *suite) run(t *testing.T, c clause) {
	t.Helper()
	ck := s.start(t, c)
	if c.waits && s.cfg.Advance == nil {
		t.Parallel()
	}
	<-ck.done
	for _, failure := range ck.failures {
		t.Errorf("%s\n\tThe contract: %s", failure, c.says)
	}
}

// clause is one demand of the contract.
type clause struct {
	name  string
	says  string            // the contract's words, quoted by a failure
	needs func(*suite) bool // whether the driver has what the clause is about; nil: always
	waits bool              // the clause lets time pass
	alone bool              // no other clause may run at the same time
	run   func(*check)
}

func clauses() []clause {
	var all []clause
	for _, group := range [][]clause{
		expiryClauses, renewTimeClauses, breakerTimeClauses, handOverTimeClauses, historyTimeClauses, // the longest run first
		limitClauses, acquireClauses, renewClauses, releaseClauses, tokenClauses,
		inspectClauses, nameClauses, argumentClauses, textClauses, dataClauses,
		contextClauses, closeClauses, raceClauses,
		watcherClauses, queueClauses, handOverClauses, handOverRaceClauses, batchClauses, inspectBatchClauses, listerClauses, breakerClauses, checkerClauses, dataStoreClauses, historyClauses,
	} {
		all = append(all, group...)
	}
	return all
}
