package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
)

type benchCmd struct {
	Rounds  int           `default:"100" placeholder:"N" help:"How many locks to acquire, renew and release, one after another. Default: ${default}."`
	Grants  int           `default:"20" placeholder:"N" help:"How many times a lock that one client releases is granted to another. Default: ${default}."`
	Crashes int           `default:"10" placeholder:"N" help:"How many holders crash, all within the time of one lease. Default: ${default}."`
	Leases  []int         `default:"100" placeholder:"N" help:"How many leases to hold at a time. Several numbers are measured one after another. Default: ${default}."`
	Hold    time.Duration `default:"15s" positive:"" placeholder:"DURATION" help:"How long to hold each number of leases. Default: ${default}."`
	TTL     time.Duration `name:"ttl" default:"15s" positive:"" placeholder:"DURATION" help:"TTL of these leases. Default: ${default}."`
	JSON    bool          `help:"Write one JSON object. What was not measured is null. Latencies are given as percentiles."`
}

// Help is shown above the flags.
func (*benchCmd) Help() string {
	var cost strings.Builder
	format.Wrap(&cost, "what it costs to hold many leases: processor time, memory, goroutines, and the "+backends.Counted()+
		" on the wire (other backends: calls of the driver)", "    --leases      ", strings.Repeat(" ", 18))
	return `Measures the backend through the library:

    --rounds      how long it takes to acquire, renew and release a lock
    --grants      how long until a waiter acquires a lock that was released
    --crashes     how long until a waiter acquires a lock whose holder crashed
` + cost.String() + `
A number of 0 skips that part. On Azure a waiter asks only every few seconds and a lease lasts at least 15s, so --grants and --crashes
take longer, and every request is billed.

The names of all locks begin with "holdfast-bench-" and a random part. All locks are released. Their records remain as long as those of
any other free lock.

Example: what it costs to hold up to 10,000 leases

    holdfast bench --rounds 0 --grants 0 --crashes 0 \
        --leases 100,1000,10000 --hold 1m`
}

// The greatest allowed numbers; a greater one is probably a mistake.
const (
	maxRounds  = 1_000_000
	maxCrashes = 10_000
	maxLeases  = 100_000
)

// Validate is called by the parser.
func (b *benchCmd) Validate() error {
	for _, c := range []struct {
		flag         string
		value, limit int
	}{{"--rounds", b.Rounds, maxRounds}, {"--grants", b.Grants, maxRounds}, {"--crashes", b.Crashes, maxCrashes}} {
		if c.value < 0 || c.value > c.limit {
			return fmt.Errorf("%s %d: must be from 0 to %d", c.flag, c.value, c.limit)
		}
	}
	kept := b.Leases[:0]
	for _, n := range b.Leases {
		if n < 0 || n > maxLeases {
			return fmt.Errorf("--leases %d: each number must be from 0 to %d", n, maxLeases)
		}
		if n > 0 {
			kept = append(kept, n)
		}
	}
	b.Leases = kept
	switch {
	case b.Rounds+b.Grants+b.Crashes+len(b.Leases) == 0:
		return fmt.Errorf("nothing to measure: --rounds, --grants, --crashes or --leases must be more than 0")
	case b.Hold > 24*time.Hour:
		return fmt.Errorf("--hold %s: must be at most 24h", driver.FormatDuration(b.Hold))
	}
	return nil
}

// Run measures and writes the report.
func (b *benchCmd) Run(a *app) error {
	ctx, interrupted := withSignals(context.Background())
	report, err := bench.Run(ctx, a.backend, bench.Options{
		Rounds: b.Rounds, HandOvers: b.Grants, Crashes: b.Crashes, Leases: b.Leases, TTL: b.TTL, Hold: b.Hold,
		Progress: func(what string) { a.log.Infof("%s …", what) },
	})
	return b.finish(a.stdout, report, err, interrupted())
}

// finish writes the report. sig is the signal that interrupted the command, or 0. If everything was measured before, the report is
// written all the same; the exit code is that of the signal.
func (b *benchCmd) finish(out io.Writer, report *bench.Report, err error, sig syscall.Signal) error {
	switch {
	case sig != 0 && err != nil: // err may name locks that were not released
		err = fmt.Errorf("interrupted: there are no results: %w", err)
	case err != nil:
	case b.JSON:
		err = writeJSON(out, report)
	default:
		err = report.WriteText(out)
	}
	if sig != 0 {
		return exitcode.With(exitcode.Signal+int(sig), err)
	}
	return err
}
