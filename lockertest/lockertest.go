// Package lockertest is the conformance suite for implementations of [driver.Locker]. An
// implementation that passes can be used wherever Holdfast needs a Locker. A driver calls the
// suite from one test of its own:
//
//	func TestConformance(t *testing.T) {
//		store := memory.NewStore()
//		lockertest.Run(t, lockertest.Config{
//			New:     func(*testing.T) driver.Locker { return store.Locker() },
//			Forget:  func(_ context.Context, name string) error { store.Remove(name); return nil },
//			Without: []string{"Damage", "Deny", "FailOver", "Stall"}, // there is no server
//		})
//	}
//
// Each subtest is one clause of the contract. A failure quotes the clause that is broken and
// says what happened instead. The clauses are those for what the Locker declares by its [driver.Info] and
// [driver.Capabilities]. At the end the suite lists those that it has left out, and why. A driver that declares
// more than it keeps fails. In every clause the suite also checks each value and error that
// the driver returns:
//
//   - No error shows a lease ID or a secret.
//   - Each error names its operation and its lock, and has one meaning.
//   - No two IDs are granted the same token.
//   - A record is consistent, and shows nothing unknown as zero.
//   - A wake-up has one of the kinds of the contract.
//
// Clauses that let a lease expire take real time, unless the test can set the driver's clock
// ([Config.Advance]). They run in parallel. A whole run takes a few seconds if a TTL may be
// 1 s, and about two minutes if it must be 15 s. A call that never returns fails its clause after a minute. A slow or busy machine causes
// no false failure: a grant fails a clause only if it came before the earliest moment at which it was
// allowed.
//
// With "go test -short" the suite leaves out the clauses that must wait for leases of more than a few seconds in real time, and
// those that stall such a backend. A run without -short belongs to every release of a driver.
package lockertest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Config describes the driver under test. New is required. Damage, Deny, Forget, Stall, and FailOver if the driver
// declares [driver.GrantsSurvive], are required, too, unless Without names them.
type Config struct {
	// New returns another Locker on the same store, as in another process. It closes the
	// Locker, and all else that it made, in t.Cleanup. Nothing else should use the store.
	// New is called about ten times.
	New func(t *testing.T) driver.Locker

	// Advance moves the clock by which the store judges expiry. It is for a driver whose
	// clock can be set and stands still otherwise. Without it the suite waits in real time.
	Advance func(d time.Duration)

	// Forget removes the record of a name without the driver, as an operator or a cleanup
	// job of a server does. The clauses about removed records need it.
	Forget func(ctx context.Context, name string) error

	// Stall makes the store stop answering calls about a name until resume is called, like a
	// stopped server or a blocked file. The clauses about a hanging backend need it. No other clause
	// runs at the same time.
	Stall func(ctx context.Context, name string) (resume func(), err error)

	// FailOver makes the server that acknowledges grants crash, and returns when another one has taken over, or
	// the same one has started again. What was not written safely is lost then. The clauses about
	// [driver.GrantsSurvive] and [driver.NotSent] need it and call it once each. No other clause runs at the same time.
	FailOver func(ctx context.Context) error

	// Deny makes the store refuse every request about a name until allow is called, as without rights or with a wrong
	// credential. The clause about [driver.ErrDenied] needs it. No other clause runs at the same time.
	Deny func(ctx context.Context, name string) (allow func(), err error)

	// Damage makes the record of a name unusable, also while the lock is held. mend makes it again what it was. The clause
	// about [driver.ErrDamaged] needs it.
	Damage func(ctx context.Context, name string) (mend func(), err error)

	// Without has "Damage", "Deny", "FailOver", "Forget" or "Stall", if the test cannot set them. Their clauses are left
	// out then. Otherwise a missing one fails the test, since nobody would notice the clauses that
	// were not checked.
	Without []string

	// TTL of the leases that the suite lets expire. The default is the shortest TTL of at
	// least one second that the limits allow.
	TTL time.Duration

	// ClockStep is the step in which the store's clock advances, such as a second for the header Date of HTTP. A lease may last
	// for up to two steps more.
	ClockStep time.Duration

	// Slack is how long after a lease's end the backend may take to grant the lock to
	// another. The default is 10 s, which is enough for a busy machine, too.
	Slack time.Duration

	// Secrets are texts that no error may show, such as the password of the URL.
	Secrets []string
}

// problems says which fields are missing although Without does not name them, or are named in vain.
func (cfg Config) problems(info driver.Info) (all []string) {
	known := map[string]bool{} // and whether it is set
	for _, field := range []struct {
		name       string
		set, wants bool
	}{
		{"Damage", cfg.Damage != nil, true},
		{"Deny", cfg.Deny != nil, true},
		{"FailOver", cfg.FailOver != nil, info.Failover == driver.GrantsSurvive},
		{"Forget", cfg.Forget != nil, true},
		{"Stall", cfg.Stall != nil, true},
	} {
		known[field.name] = field.set
		if field.wants && !field.set && !slices.Contains(cfg.Without, field.name) {
			all = append(all, "lockertest: Config."+field.name+" is missing, so the clauses that need it are not checked; "+
				"set it, or name it in Config.Without")
		}
	}
	for _, field := range cfg.Without {
		if set, is := known[field]; set || !is {
			all = append(all, fmt.Sprintf("lockertest: Config.Without has %q; want Damage, Deny, FailOver, Forget or Stall, and only what is "+
				"not set", field))
		}
	}
	return all
}

// Run checks a driver. It returns when all subtests have ended.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	s := newSuite(t, cfg)
	for _, problem := range cfg.problems(s.info) {
		t.Error(problem)
	}
	t.Run("Locker", func(t *testing.T) { s.runAll(t, false) })
	s.runAll(t, true)
	if text := s.summary(); testing.Verbose() {
		t.Log(text)
	} else {
		fmt.Fprintln(os.Stderr, text)
	}
}

// longTTL is what a short run does not wait for.
const longTTL = 5 * time.Second

// takesLong reports whether a clause takes so long in real time that "go test -short" leaves it out.
func (s *suite) takesLong(c clause) bool {
	return testing.Short() && s.cfg.Advance == nil && s.cfg.TTL > longTTL && (c.waits || c.alone)
}

// runAll runs the clauses that must be alone, or all others.
func (s *suite) runAll(t *testing.T, alone bool) {
	t.Helper()
	for _, c := range clauses() {
		if c.alone != alone {
			continue
		}
		why := s.lacking(c.needs)
		if s.takesLong(c) {
			why = append(why, "the run is short")
		}
		if len(why) == 0 && s.hanging() {
			why = []string{"the driver has stopped answering"}
			t.Errorf("%s: %s", c.name, why[0])
		}
		if len(why) == 0 {
			t.Run(c.name, func(t *testing.T) { s.run(t, c) })
		}
		s.leaveOut(c.name, why...)
	}
}

// run executes one clause. A clause that waits goes on while the next ones run: it is started
// before its subtest becomes parallel, since -parallel allows too few subtests at a time.
func (s *suite) run(t *testing.T, c clause) {
	t.Helper()
	ck := s.start(t, c)
	if c.waits && s.cfg.Advance == nil {
		t.Parallel()
	}
	for _, failure := range s.await(ck) {
		t.Errorf("%s\n\tThe contract: %s", failure, c.says)
	}
}

// clause is one demand of the contract.
type clause struct {
	name  string
	says  string // the contract's words, quoted by a failure
	needs need   // without it the clause is left out
	waits bool   // the clause lets time pass
	alone bool   // no other clause may run at the same time
	run   func(*check)
}

func clauses() []clause {
	var all []clause
	for _, group := range [][]clause{
		expiryClauses, freeTimeClauses, renewTimeClauses, breakerTimeClauses, historyTimeClauses, // the longest run first
		sharedTimeClauses,
		infoClauses, freeClauses, acquireClauses, renewClauses, stateClauses, releaseClauses, lateClauses, tokenClauses,
		inspectClauses, nameClauses, argumentClauses, textClauses, dataClauses,
		contextClauses, closeClauses, raceClauses,
		watcherClauses, queueClauses, batchClauses, releaseBatchClauses,
		inspectBatchClauses, listerClauses, breakerClauses, checkerClauses, dataStoreClauses, historyClauses, failOverClauses,
		sharedClauses, sharedQueueClauses, lastingClauses, notSentClauses,
	} {
		all = append(all, group...)
	}
	return all
}
