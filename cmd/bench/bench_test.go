package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	memstore "github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuantile(t *testing.T) {
	var s Samples
	if s.Quantile(0.5) != 0 || s.Latency() != nil {
		t.Error("without samples there is no quantile")
	}
	for i := 100; i > 0; i-- {
		s.Add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]int{0: 1, 0.005: 1, 0.5: 50, 0.501: 51, 0.9: 90, 0.99: 99, 1: 100} {
		if got := s.Quantile(q); got != time.Duration(want)*time.Millisecond {
			t.Errorf("quantile %v is %v, want %d ms", q, got, want)
		}
	}
	l := s.Latency()
	if l.Count != 100 || l.P50 != 50 || l.P90 != 90 || l.P99 != 99 || len(l.Percentiles) != 101 {
		t.Fatalf("%+v", *l)
	}
	for p, got := range l.Percentiles {
		if want := float64(max(p, 1)); got != want {
			t.Errorf("percentile %d is %v ms, want %v", p, got, want)
		}
	}
}

// small measures every part with small numbers.
var small = Options{Rounds: 5, HandOvers: 3, Crashes: 2, Leases: []int{1, 40}, TTL: 3 * time.Second, Hold: 1500 * time.Millisecond}

// Every part is measured, with names of the run's own, and no lock stays held.
func TestRun(t *testing.T) {
	var r *Report
	var url string
	for range 5 { // a busy machine can delay the renewals, or lose leases of 3 s
		var err error
		url = "file:" + t.TempDir()
		if r, err = Run(t.Context(), url, small); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Leases, func(h LeaseCost) bool { return !steady(h) }) {
			break
		}
	}
	for what, l := range map[string]*Latency{"acquire": r.Acquire, "renew": r.Renew, "release": r.Release, "handoff": r.HandOver,
		"takeover": r.TakeOver} {
		if l == nil || l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 {
			t.Errorf("%s: %+v", what, l)
		}
	}
	if r.Acquire.Count != 5 || r.HandOver.Count != 3 || r.TakeOver.Count != 2 || r.HandOverRatio == nil {
		t.Errorf("%+v", r)
	}
	if len(r.Leases) != 2 || r.Leases[1].Leases != 40 || r.Leases[1].OneByOne != 40 {
		t.Errorf("%+v", r.Leases)
	}
	for _, h := range r.Leases {
		if !steady(h) {
			t.Errorf("%+v, want about %v calls a second", h, callsASecond(h))
		}
	}
	if held, all := records(t, url, r.Prefix); held != 0 || all != 44 {
		t.Errorf("of %d locks %d are still held", all, held)
	}
}

// callsASecond says how often leases are renewed in small: each once in 1.5 s, after 1 s.
func callsASecond(h LeaseCost) float64 { return float64(h.Leases) / 1.5 }

// steady reports whether all leases were held and renewed as they should be.
func steady(h LeaseCost) bool {
	return h.Lost == 0 && h.Calls > 0 && h.Calls <= 3*callsASecond(h) && h.Goroutines <= 20
}

// records counts the locks of a backend. It fails the test if one lacks the prefix.
func records(t *testing.T, url, prefix string) (held, all int) {
	t.Helper()
	l, err := driver.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	for r, err := range l.Capabilities().Lister.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all++
		if r.State != driver.StateFree {
			held++
		}
		if !strings.HasPrefix(r.Name, prefix) {
			t.Errorf("the name %q lacks the prefix", r.Name)
		}
	}
	return held, all
}

// No lock stays held, whenever the run is interrupted after its first lock.
func TestInterrupted(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond} {
		url := "file:" + t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := sync.OnceFunc(func() { time.AfterFunc(after, cancel) })
		all := Options{Rounds: 3, HandOvers: 5, Crashes: 20, Leases: []int{50}, TTL: time.Minute, Hold: time.Minute,
			Progress: func(string) { begin() }}
		if _, err := Run(ctx, url, all); !errors.Is(err, context.Canceled) {
			t.Errorf("after %v: %v", after, err)
		}
		if held, n := records(t, url, "holdfast-bench-"); held != 0 || n == 0 {
			t.Errorf("after %v: of %d locks %d are still held", after, n, held)
		}
	}
}

// A lock of a crashed holder that is never granted is reported as held, and not only as the end of the time for it.
func TestTakeOverNeverGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := memstore.NewStore().Locker()
		waiting := locktest.NewClient(t, driver.Intercept(locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodTryAcquire {
				return driver.Answer{Err: &driver.HeldError{Record: driver.Record{Name: call.Request.Name, State: driver.StateHeld}}}
			}
			return next(ctx, call)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var times Samples
		err := TakeOvers(ctx, locker, waiting, "n-", 5, crashTTL, crashTTL, &times)
		if !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the lock that was never granted", err)
		}
	})
}

// What the backend does not support is refused before anything is measured.
func TestRefused(t *testing.T) {
	o := small
	o.TTL = time.Microsecond
	o.Progress = func(step string) { t.Errorf("it began with %q", step) }
	if _, err := Run(t.Context(), "file:"+t.TempDir(), o); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a TTL of 1 µs: %v", err)
	}
	if _, err := Run(t.Context(), "nowhere:", small); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an unknown backend: %v", err)
	}
}

// Calls of every method and capability are counted.
func TestCalls(t *testing.T) {
	b := NewBackend("mem:")
	l, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, a := t.Context(), l.Capabilities()
	lease := holdfast.Lease{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Minute}
	req := driver.Request{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Minute}
	for what, call := range map[string]func(){
		"acquire": func() { _, _ = l.TryAcquire(ctx, req) }, "renew": func() { _, _ = l.Renew(ctx, lease) },
		"release": func() { _ = l.Release(ctx, lease) }, "inspect": func() { _, _ = l.Inspect(ctx, "n") },
		"renew batch":   func() { a.BatchRenewer.RenewBatch(ctx, []holdfast.Lease{lease}) },
		"release batch": func() { a.BatchReleaser.ReleaseBatch(ctx, []holdfast.Lease{lease}) },
		"inspect batch": func() { a.BatchInspector.InspectBatch(ctx, "", []string{"n"}) },
	} {
		before := b.Calls()
		if call(); b.Calls() != before+1 {
			t.Errorf("%s counted as %d calls", what, b.Calls()-before)
		}
	}
}

// A part that was not measured is null in JSON and missing in the text.
func TestOutputFormats(t *testing.T) {
	r, err := Run(t.Context(), "mem:", Options{Rounds: 3, Leases: []int{2}, TTL: time.Minute, Hold: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"handOver", "takeOver", "handOverRatio"} {
		if value, present := fields[name]; !present || value != nil {
			t.Errorf("%s is %v, want null", name, value)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "acquire") || strings.Contains(got, "handoff") || !strings.Contains(got, "bytes/lease") {
		t.Errorf("%s", got)
	}
}
