package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/bench"
)

type benchCmd struct {
	Rounds    int           `default:"100" help:"How many locks are taken, renewed and released, one after the other (default ${default})."`
	Handovers int           `default:"20" help:"How often a lock passes between two clients (default ${default})."`
	Crashes   int           `default:"10" help:"How many holders crash, all within the time of one lease (default ${default})."`
	Leases    []int         `default:"100" placeholder:"N,..." help:"How many leases are held at a time; several numbers are measured one after the other (default ${default})."`
	Hold      time.Duration `default:"15s" positive:"" placeholder:"DURATION" help:"How long each number of leases is held (default ${default})."`
	TTL       time.Duration `name:"ttl" default:"15s" positive:"" placeholder:"DURATION" help:"TTL of the leases held (default ${default})."`
	JSON      bool          `help:"Write one JSON object. What was not measured is null. Latencies have their whole distribution, in percentiles."`
}

// Help is shown below the flags.
func (*benchCmd) Help() string {
	return `Measures the backend through the library: how long it takes to acquire, renew and release a lock; until a waiting client has a lock that another released, or whose holder crashed; and what it costs to hold many leases: commands to MongoDB or requests to Azure, as counted on the wire (elsewhere: calls of the driver), processor time, memory, goroutines.

A number of 0 leaves a part out. With Azure a waiter asks every few seconds, and a lease lasts at least 15 seconds: hand-overs and crashes take their time there, and every request is billed.

All locks have names that begin with "holdfast-bench-" and a random text. All are released; their records stay as long as those of any free lock do.

Example: what holding up to 10,000 leases costs

    holdfast bench --rounds 0 --handovers 0 --crashes 0 --leases 100,1000,10000 --hold 1m`
}

// The most of each number: what is more was hardly meant.
const (
	mostRounds  = 1_000_000
	mostCrashes = 10_000
	mostLeases  = 100_000
)

// Validate is called by the parser.
func (b *benchCmd) Validate() error {
	for _, c := range []struct {
		flag        string
		value, most int
	}{{"--rounds", b.Rounds, mostRounds}, {"--handovers", b.Handovers, mostRounds}, {"--crashes", b.Crashes, mostCrashes}} {
		if c.value < 0 || c.value > c.most {
			return fmt.Errorf("%s %d: must be from 0 to %d", c.flag, c.value, c.most)
		}
	}
	kept := b.Leases[:0]
	for _, n := range b.Leases {
		if n < 0 || n > mostLeases {
			return fmt.Errorf("--leases %d: each number must be from 0 to %d", n, mostLeases)
		}
		if n > 0 {
			kept = append(kept, n)
		}
	}
	b.Leases = kept
	switch {
	case b.Rounds+b.Handovers+b.Crashes+len(b.Leases) == 0:
		return fmt.Errorf("nothing is left to measure: one of --rounds, --handovers, --crashes and --leases must be more than 0")
	case b.Hold > 24*time.Hour:
		return fmt.Errorf("--hold %s: must be at most 24h", text.Duration(b.Hold))
	}
	return nil
}

// Run measures and reports.
func (b *benchCmd) Run(a *app) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := b.measure(ctx, a)
	if err != nil {
		return err
	}
	if b.JSON {
		return writeJSON(a.stdout, report)
	}
	return report.WriteText(a.stdout)
}

func (b *benchCmd) measure(ctx context.Context, a *app) (*bench.Report, error) {
	report, err := bench.Run(ctx, a.backend, bench.Options{
		Rounds: b.Rounds, HandOvers: b.Handovers, Crashes: b.Crashes, Leases: b.Leases, TTL: b.TTL, Hold: b.Hold,
		Progress: func(what string) { a.say.info("%s …", what) },
	})
	if ctx.Err() != nil {
		return nil, &exitError{codeSignal + int(syscall.SIGINT), fmt.Errorf("interrupted: nothing is reported, the locks were released: %w", err)}
	}
	return report, err
}
