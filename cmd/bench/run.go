package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Options say how much is measured. Parts whose number is 0, or empty, are skipped.
type Options struct {
	Rounds    int   // locks that are acquired, renewed and released, one after the other
	HandOvers int   // how often a lock is handed over from one client to another
	Crashes   int   // holders that crash
	Leases    []int // how many leases are held at the same time; measured one after the other

	TTL  time.Duration // of the leases that are held
	Hold time.Duration // how long each number of leases is held
	// Progress is called with a description of each step before it begins; it can be nil.
	Progress func(step string)
}

// Report is the result. A part that was not measured is nil.
type Report struct {
	Backend string `json:"backend"` // its kind: the URL can contain a password
	Prefix  string `json:"prefix"`  // of the names of all locks that were used
	System  string `json:"system"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	Counted string `json:"counted"` // the unit of callsPerSecond

	Acquire  *Latency `json:"acquire"`
	Renew    *Latency `json:"renew"`
	Release  *Latency `json:"release"`
	HandOver *Latency `json:"handOver"`
	// HandOverRatio is the median of handoffs divided by the sum of the medians of
	// acquire and release.
	HandOverRatio *float64 `json:"handOverRatio"`
	// TakeOver is the time from the expiry of the crashed holder's lease on the backend.
	TakeOver *Latency    `json:"takeOver"`
	Leases   []LeaseCost `json:"leases"`
}

// crashTTL is the TTL of crashed holders, unless the backend's minimum is longer.
const crashTTL = 2 * time.Second

// Run measures a backend. Also after an error, or the end of ctx, it has released every lock that
// the backend let it release.
func Run(ctx context.Context, url string, o Options) (*Report, error) {
	b := NewBackend(url)
	r := &Report{
		Backend: b.Kind(), Prefix: "holdfast-bench-" + strings.ToLower(rand.Text()[:10]) + "-",
		System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Counted: b.Counted(),
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := o.check(ctx, b); err != nil {
		return nil, err
	}
	if err := r.measureCalls(ctx, b, o); err != nil {
		return nil, err
	}
	for _, n := range o.Leases {
		o.Progress(fmt.Sprintf("%d leases are held for %v", n, o.Hold))
		cost, err := HoldLeases(ctx, b, r.Prefix, n, o.TTL, o.Hold)
		if err != nil {
			return nil, fmt.Errorf("holding %d leases: %w", n, err)
		}
		r.Leases = append(r.Leases, cost)
	}
	return r, nil
}

// check fails if the backend does not support the TTL.
func (o Options) check(ctx context.Context, b *Backend) error {
	l, err := b.Open(ctx)
	if err != nil {
		return err
	}
	if len(o.Leases) > 0 {
		err = driver.ValidateTTL(o.TTL, l.Info().Limits)
	}
	return errors.Join(err, l.Close(ctx))
}

// measureCalls measures what needs one lock at a time: calls, handoffs and takeovers.
func (r *Report) measureCalls(ctx context.Context, b *Backend, o Options) (err error) {
	var clients [2]*holdfast.Client
	for i := range clients {
		if clients[i], err = b.Client(ctx); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
			defer cancel()
			err = errors.Join(err, clients[i].Shutdown(ctx))
		}()
	}
	var calls Calls
	round := func() error { return calls.Round(ctx, clients[0], r.Prefix+"free") }
	remaining := o.Rounds
	if o.Rounds > 0 {
		if err := round(); err != nil { // connects, and creates the record
			return err
		}
		calls = Calls{}
	}
	var handOvers, takeOvers Samples
	if o.HandOvers > 0 {
		o.Progress(fmt.Sprintf("%d handoffs between two clients", o.HandOvers))
		if err := HandOvers(ctx, clients, r.Prefix+"handed-over", o.HandOvers, &handOvers, func() error {
			if remaining == 0 {
				return nil
			}
			remaining--
			return round()
		}); err != nil {
			return err
		}
	}
	o.Progress(fmt.Sprintf("%d locks are acquired, renewed and released", remaining))
	for ; remaining > 0; remaining-- {
		if err := round(); err != nil {
			return err
		}
	}
	if o.Crashes > 0 {
		ttl := max(crashTTL, clients[0].Info().Limits.MinTTL)
		o.Progress(fmt.Sprintf("%d holders crash; their leases last %v", o.Crashes, ttl))
		if err := TakeOvers(ctx, clients[0].Locker(), clients[1], r.Prefix, o.Crashes, ttl, ttl, &takeOvers); err != nil {
			return err
		}
	}
	r.Acquire, r.Renew, r.Release = calls.Acquire.Latency(), calls.Renew.Latency(), calls.Release.Latency()
	r.HandOver, r.TakeOver = handOvers.Latency(), takeOvers.Latency()
	if r.HandOver != nil && r.Acquire != nil {
		ratio := float64(handOvers.Quantile(0.5)) / float64(max(calls.AcquireAndRelease(), 1))
		r.HandOverRatio = &ratio
	}
	return nil
}
