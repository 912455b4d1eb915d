// Package lockertest is the conformance suite for implementations of
// [driver.Locker]: what passes it can be used wherever a Locker is wanted.
// A driver calls it from one test of its own:
//
//	func TestConformance(t *testing.T) {
//		store := memory.NewStore()
//		lockertest.Run(t, lockertest.Config{
//			New: func(*testing.T) driver.Locker { return store.Locker() },
//		})
//	}
//
// Each subtest is one clause of the contract. A failure quotes the sentence
// that is broken and says what was seen instead. While it runs, the suite also
// checks each value and error that the driver returns, whatever the clause: that
// no error shows a lease ID, that each names its operation and lock and has one
// meaning, that no two IDs are granted the same token, and that what is unknown
// is not passed off as zero.
//
// Clauses that let a lease expire take real time unless the driver's clock can
// be set ([Config.Advance]). They run side by side, so that a whole run takes a
// few seconds where a TTL may be 1 s, and about two minutes where it must be
// 15 s. They stay right on a slow or busy machine: whoever is granted a lock is
// held to the moment before which that was impossible, never to a guess.
package lockertest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Config describes the driver under test. Only New is required.
type Config struct {
	// New returns another Locker on the same store, as another process would
	// have it. It closes the Locker and whatever else it made in t.Cleanup. The
	// store should be used by nobody else. New is called about ten times.
	New func(t *testing.T) driver.Locker

	// Advance moves the clock by which the store judges expiry, for a driver
	// whose clock can be set and stands still otherwise. Without it the suite
	// waits in real time.
	Advance func(d time.Duration)

	// Forget removes the record of a name behind the driver's back, as an
	// operator or the clean-up of a server does. Without it the clauses about
	// removed records are left out.
	Forget func(ctx context.Context, name string) error

	// Stall makes the store stop answering calls about a name until resume is
	// called: a stopped server, a blocked file. Without it the clauses about a
	// hanging backend are left out. No other clause runs meanwhile.
	Stall func(ctx context.Context, name string) (resume func(), err error)

	// TTL of the leases that the suite lets expire. Default: the shortest of at
	// least one second that the limits allow.
	TTL time.Duration

	// Slack is how long after a lease's end the backend may take to grant the
	// lock to another. Default: 10 s, which forgives a busy machine, too.
	Slack time.Duration

	// RenewKeepsTTL says that a lease's length is fixed when it is granted, so
	// that a renewal with a longer TTL is not expected to make it longer.
	RenewKeepsTTL bool

	// Secrets must not occur in any error: the password of the URL, for one.
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
				t.Logf("left out, as the driver or the Config lacks what it needs: %s", c.name)
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

// run executes one clause. Those that wait go on while the next ones run: the
// number of parallel subtests that -parallel allows would be too few for them.
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

// clause is one thing that the contract asks.
type clause struct {
	name  string
	says  string            // the contract's sentence, for whoever broke it
	needs func(*suite) bool // nil: every driver
	waits bool              // lets time pass
	alone bool              // nothing else may run meanwhile
	run   func(*check)
}

func clauses() []clause {
	var all []clause
	for _, group := range [][]clause{
		expiryClauses, renewTimeClauses, breakerTimeClauses, handOverTimeClauses, // the long ones first
		limitClauses, acquireClauses, renewClauses, releaseClauses, tokenClauses,
		inspectClauses, nameClauses, argumentClauses, textClauses, dataClauses,
		contextClauses, closeClauses, raceClauses,
		watcherClauses, handOverClauses, handOverRaceClauses, batchClauses, lookClauses, listerClauses, breakerClauses, dataStoreClauses,
	} {
		all = append(all, group...)
	}
	return all
}
