package lockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// What a test does not set is said unless the test names it, since a driver that breaks its clauses would pass.
func TestMissingFieldsAreNamed(t *testing.T) {
	forget := func(context.Context, string) error { return nil }
	stall := func(context.Context, string) (func(), error) { return func() {}, nil }
	refuse, lasting := newFixture().refuse(driver.Denied), []string{"Damage", "Deny"}
	forgets, survives := driver.Info{Failover: driver.GrantsMayBeForgotten}, driver.Info{Failover: driver.GrantsSurvive}
	for _, c := range []struct {
		cfg  Config
		info driver.Info
		want []string
	}{
		{Config{}, forgets, []string{"Config.Damage is missing", "Config.Deny is missing", "Config.Forget is missing",
			"Config.Stall is missing"}},
		{Config{Without: []string{"Stall", "Forget", "Deny", "Damage"}}, forgets, nil},
		{Config{Forget: forget, Stall: stall, Deny: refuse, Damage: refuse}, forgets, nil},
		{Config{Forget: forget, Stall: stall, Without: lasting}, forgets, nil},
		{Config{Forget: forget, Stall: stall, Deny: refuse, Without: []string{"Damage"}}, forgets, nil},
		{Config{Forget: forget, Stall: stall, Without: lasting}, survives, []string{"Config.FailOver is missing"}},
		{Config{Forget: forget, Stall: stall, Without: append(lasting, "FailOver")}, survives, nil},
		{Config{Forget: forget, Stall: stall, Without: lasting, FailOver: func(context.Context) error { return nil }}, survives, nil},
		{Config{Forget: forget, Without: lasting}, forgets, []string{"Config.Stall is missing"}},
		{Config{Forget: forget, Without: append(lasting, "Forget", "Stall")}, forgets, []string{`has "Forget"`}},
		{Config{Forget: forget, Stall: stall, Without: append(lasting, "Advance")}, forgets, []string{`has "Advance"`}},
	} {
		got := c.cfg.problems(c.info)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.Contains(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A Queue that reports some releases only must not say that waking is in effect: the waiters would poll rarely.
func TestWakesInPart(t *testing.T) {
	cfg := newFixture().config(fault{info: func(_ *fixture, i *driver.Info) { i.WakesInPart = true }})
	s := newSuite(t, cfg)
	if failures := s.failures(t, "queue/wakes"); !containsFold(fmt.Sprint(failures), "as if waking were in effect") {
		t.Errorf("%q", failures)
	}
}

// What was not checked is listed with the reason: what the Config lacks, the driver lacks, and the driver declares.
func TestSummary(t *testing.T) {
	cfg := newFixture().config(minimal())
	cfg.Stall, cfg.Advance, cfg.Deny = nil, nil, nil
	s := newSuite(t, cfg)
	s.info.Free = driver.FreeRecord{}
	s.lacks = s.findLacks()
	for _, c := range clauses() {
		s.leaveOut(c.name, s.lacking(c.needs)...)
	}
	ck := s.start(t, clause{name: "acquire/replace", run: replace})
	<-ck.done
	got := s.summary()
	for _, want := range []string{
		"clauses were checked on \"memory\"\n\tNOT CHECKED:\n",
		"Config.Stall is not set: context/hanging backend, context/own limit, close/hanging backend",
		"Config.Advance is not set: free/stays\n",
		"Config.Deny is not set: lasting/denied",
		"the driver has no Queue: queue/order, ",
		"the driver has no Breaker: breaker/runs out, ",
		"Info.FixedTTL declares that a renewal does not lengthen a lease: ",
		"Info.Failover declares that grants may be forgotten: failover/grants survive\n",
		"Info.Free.Data declares that a free record does not keep the data: free/data, ",
		"Info.History declares that no past holders are kept: history/",
		"\tchecked in part:\n\t\tthe driver's records have no Revision: acquire/replace",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}
	whole := newSuite(t, newFixture().config(fault{}))
	if got, want := whole.summary(), "lockertest: "; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
		t.Errorf("with all that clauses need: %s", got)
	}
}

// A call that never returns fails its clause, and the suite gives up after some of them.
func TestDriverThatNeverAnswers(t *testing.T) {
	ended := make(chan struct{})
	defer close(ended)
	cfg := newFixture().config(fault{do: on(driver.MethodRenew, func(c *call) driver.Answer {
		<-ended
		return c.fail(errors.New("too late"))
	})})
	s := newSuite(t, cfg)
	s.soon, s.ownLimit = 50*time.Millisecond, 100*time.Millisecond
	for i, name := range []string{"release/stale", "acquire/replace", "race/exclusion"} {
		if s.hanging() {
			t.Errorf("the suite gives up after %d clauses", i)
		}
		if failures := s.failures(t, name); !containsFold(fmt.Sprint(failures), "Renew had not returned after") {
			t.Errorf("%s: %q", name, failures)
		}
	}
	if !s.hanging() {
		t.Error("the suite goes on")
	}
}

// The pages that say how many clauses there are say it right; "holdfast certify" has one more, about the driver's guard.
func TestPagesCountTheClauses(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	number := func(text string) int { n, _ := strconv.Atoi(text); return n }
	for _, path := range files {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(\d+) clauses apply`).FindAllStringSubmatch(string(page), -1) {
			if number(m[1]) != Clauses() {
				t.Errorf("%s says %q, and there are %d", path, m[0], Clauses())
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\| .* \| (\d+) of \d+ \| (\d+) \|$`).FindAllStringSubmatch(string(page), -1) {
			if number(m[1])+number(m[2]) != Clauses()+1 {
				t.Errorf("%s: %s: these are not %d clauses", path, m[0], Clauses()+1)
			}
		}
	}
}
