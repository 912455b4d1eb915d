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

// Options say how much is measured. What is 0, or empty, is left out.
type Options struct {
	Rounds    int   // how many locks are taken, renewed and released, one after the other
	HandOvers int   // how often a lock passes from one client to another
	Crashes   int   // how many holders crash
	Leases    []int // how many leases are held at a time, one after the other
	// TTL is that of the leases held.
	TTL time.Duration
	// Hold is how long each number of leases is held.
	Hold time.Duration
	// Progress is told what comes next; it may be nil.
	Progress func(string)
}

// Report is what was measured. What was not is nil.
type Report struct {
	Backend string `json:"backend"` // its kind: a URL may hold a password
	Prefix  string `json:"prefix"`  // of the names of all locks that were used
	System  string `json:"system"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	Counted string `json:"counted"` // what callsPerSecond counts

	Acquire  *Latency `json:"acquire"`
	Renew    *Latency `json:"renew"`
	Release  *Latency `json:"release"`
	HandOver *Latency `json:"handOver"`
	// HandOverRatio is the median hand-over over the sum of the medians of acquire and
	// release.
	HandOverRatio *float64 `json:"handOverRatio"`
	// TakeOver counts from the expiry of the crashed holder's lease on the backend.
	TakeOver *Latency `json:"takeOver"`
	Leases   []Held   `json:"leases"`
}

// crashTTL is that of the leases of crashed holders, unless the backend's least is more.
const crashTTL = 2 * time.Second

// Run measures a backend. After an error, a context's end too, it has given back
// what it took, as far as the backend let it.
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
		held, err := Hold(ctx, b, r.Prefix, n, o.TTL, o.Hold)
		if err != nil {
			return nil, fmt.Errorf("holding %d leases: %w", n, err)
		}
		r.Leases = append(r.Leases, held)
	}
	return r, nil
}

// check refuses a TTL that the backend does not have, before anything is measured.
func (o Options) check(ctx context.Context, b *Backend) error {
	l, err := b.Open(ctx)
	if err != nil {
		return err
	}
	if len(o.Leases) > 0 {
		err = driver.ValidateTTL(o.TTL, l.Limits())
	}
	return errors.Join(err, l.Close(ctx))
}

// measureCalls measures what takes one lock and up to two clients.
func (r *Report) measureCalls(ctx context.Context, b *Backend, o Options) (err error) {
	var clients [2]*holdfast.Client
	for i := range clients {
		if clients[i], err = b.Client(ctx); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
			defer cancel()
			err = errors.Join(err, clients[i].Shutdown(ctx))
		}()
	}
	var calls Calls
	round := func() error { return calls.Round(ctx, clients[0], r.Prefix+"free") }
	rest := o.Rounds
	if o.Rounds > 0 {
		if err := round(); err != nil { // connects, and makes the record
			return err
		}
		calls = Calls{}
	}
	var passing, taking Samples
	if o.HandOvers > 0 {
		o.Progress(fmt.Sprintf("%d hand-overs between two clients", o.HandOvers))
		if err := HandOvers(ctx, clients, r.Prefix+"handed-over", o.HandOvers, &passing, func() error {
			if rest == 0 {
				return nil
			}
			rest--
			return round()
		}); err != nil {
			return err
		}
	}
	o.Progress(fmt.Sprintf("%d locks are taken, renewed and released", rest))
	for ; rest > 0; rest-- {
		if err := round(); err != nil {
			return err
		}
	}
	if o.Crashes > 0 {
		ttl := max(crashTTL, clients[0].Locker().Limits().MinTTL)
		o.Progress(fmt.Sprintf("%d holders crash; their leases last %v", o.Crashes, ttl))
		if err := TakeOvers(ctx, clients[0].Locker(), clients[1], r.Prefix, o.Crashes, ttl, ttl, &taking); err != nil {
			return err
		}
	}
	r.Acquire, r.Renew, r.Release = calls.Acquire.Latency(), calls.Renew.Latency(), calls.Release.Latency()
	r.HandOver, r.TakeOver = passing.Latency(), taking.Latency()
	if r.HandOver != nil && r.Acquire != nil {
		ratio := r.HandOver.P50 / max(r.Acquire.P50+r.Release.P50, 1e-6)
		r.HandOverRatio = &ratio
	}
	return nil
}
