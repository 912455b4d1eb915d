package otelholdfast_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/otelholdfast"
	"github.com/holdfast-go/holdfast/partitions"
)

// Each acquisition has a result, and what is held and waited for is counted while it is.
func TestMetricsOfAcquisitionsAndHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memory.NewStore(), newRig(t, otelholdfast.WithLockName(byName))
		c := r.client(t, store.Locker())
		first, err := c.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Lock(context.Background(), "job") }()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		r.expect(t, map[string]map[string]string{
			"holdfast.held":           {"lock=job": "1"},
			"holdfast.waiting":        {"lock=job": "1"},
			"holdfast.losses":         {"lock=job": "0"},
			"holdfast.overruns":       {"lock=job": "0"},
			"holdfast.renewal.margin": {"lock=job": "1 15"},
			"holdfast.acquire.duration": {
				"lock=job,result=acquired": "1 0", "lock=job,result=canceled": "1 12", "lock=job,result=held": "1 0"},
			"holdfast.renewal.batch.size": {"backend=memory": "1 1"},
			"holdfast.client.operation.duration": {
				"backend=memory,operation=acquire": "1 0", "backend=memory,error.type=held,operation=acquire": "1 0",
				"backend=memory,operation=renew": "1 0"},
		})
		_ = first.Release(t.Context())
		synctest.Wait()
		r.expect(t, map[string]map[string]string{
			"holdfast.held":          {"lock=job": "1"}, // the waiter
			"holdfast.waiting":       {"lock=job": "0"},
			"holdfast.hold.duration": {"end=released,lock=job": "1 12"},
		})
		_ = c.Shutdown(t.Context())
		if _, err := c.Lock(t.Context(), "job"); !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
		got := points(r.collect(t)["holdfast.acquire.duration"])
		if got["lock=job,result=closed"] != "1 0" {
			t.Errorf("acquisitions: %v", got)
		}
	})
}

// lateRelease answers 5 s after it has released.
type lateRelease struct{ *memory.Locker }

func (l lateRelease) Release(ctx context.Context, lease driver.Lease) error {
	err := l.Locker.Release(ctx, lease)
	time.Sleep(5 * time.Second)
	return err
}

// While the answer to a release is under way and another process holds the lock already, the metrics
// show one holder and one leader.
func TestMetricsOfALateRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, mine, others := memory.NewStore(), newRig(t, otelholdfast.WithLockName(byName)), newRig(t, otelholdfast.WithLockName(byName))
		leads := func(r *rig, l holdfast.Locker) *holdfast.LeaderAwareRunner {
			runner, err := holdfast.NewLeaderAwareRunner(r.client(t, l), "job")
			if err != nil {
				t.Fatal(err)
			}
			return runner
		}
		work := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := func(r *holdfast.LeaderAwareRunner) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = r.Run(ctx, work) }()
			synctest.Wait()
			t.Cleanup(func() { cancel(); <-done })
			return cancel
		}
		stop := start(leads(mine, lateRelease{store.Locker()}))
		start(leads(others, store.Locker()))
		stop()
		time.Sleep(time.Second)
		none, one := map[string]string{"lock=job": "0"}, map[string]string{"lock=job": "1"}
		mine.expect(t, map[string]map[string]string{"holdfast.held": none, "holdfast.leader": none})
		others.expect(t, map[string]map[string]string{"holdfast.held": one, "holdfast.leader": one})
	})
}

// unrenewable refuses every renewal without a definite answer.
type unrenewable struct{ *memory.Locker }

func (unrenewable) Renew(context.Context, driver.Lease) (driver.Lease, error) {
	return driver.Lease{}, &driver.OpError{Op: "renew", Backend: "memory", Err: context.DeadlineExceeded}
}

func (unrenewable) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// A loss and an overrun are counted once, when they happen.
func TestMetricsOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, otelholdfast.WithLockName(byName))
		c := r.client(t, unrenewable{memory.New()})
		h, err := c.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(26 * time.Second)
		after := map[string]map[string]string{
			"holdfast.held":          {"lock=job": "0"},
			"holdfast.losses":        {"lock=job": "1"},
			"holdfast.overruns":      {"lock=job": "0"},
			"holdfast.hold.duration": {"end=lost,lock=job": "1 25"},
		}
		r.expect(t, after)
		time.Sleep(10 * time.Second)
		_ = h.Release(t.Context())
		after["holdfast.overruns"]["lock=job"] = "1"
		r.expect(t, after)
		if got := points(r.collect(t)["holdfast.client.operation.duration"]); got["backend=unknown,error.type=timeout,operation=renew"] != "" ||
			got["backend=memory,error.type=timeout,operation=renew"] == "" {
			t.Errorf("calls: %v", got)
		}
	})
}

// A candidate has the value 0, the leader 1, also under client-go's name, and each election counts.
func TestMetricsOfARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		run := func(ctx context.Context, r *rig) (done chan struct{}) {
			runner, err := holdfast.NewLeaderAwareRunner(r.client(t, store.Locker()), "leader")
			if err != nil {
				t.Fatal(err)
			}
			done = make(chan struct{})
			go func() {
				defer close(done)
				_ = runner.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}()
			synctest.Wait()
			return done
		}
		a, b := newRig(t, otelholdfast.WithLockName(byName)), newRig(t, otelholdfast.WithLockName(byName))
		ctx, cancel := context.WithCancel(t.Context())
		done := run(ctx, a)
		ended := run(t.Context(), b)
		expect := func(r *rig, leads, elections string) {
			t.Helper()
			r.expect(t, map[string]map[string]string{
				"holdfast.leader":               {"lock=leader": leads},
				"leader_election_master_status": {"name=leader": leads},
				"holdfast.leader.transitions":   {"lock=leader": elections},
			})
		}
		expect(a, "1", "1")
		expect(b, "0", "0")
		cancel()
		<-done
		synctest.Wait()
		expect(a, "0", "1")
		expect(b, "1", "1")
		_ = ended // the client's Shutdown ends it
	})
}

// The leaders of a pool are several, in slots with names of their own, so none of them counts as the leader.
func TestMetricsOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, otelholdfast.WithLockName(byName), otelholdfast.WithLeaders(func(string) bool { return true }))
		c := r.client(t, memory.New())
		ctx, cancel := context.WithCancel(t.Context())
		var runners sync.WaitGroup
		for range 3 {
			runner, err := holdfast.NewLeaderAwareRunner(c, "pool", holdfast.WithSlots(2))
			if err != nil {
				t.Fatal(err)
			}
			runners.Go(func() { _ = runner.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) })
		}
		runners.Go(func() {
			_ = c.Do(ctx, "semaphore", func(ctx context.Context) error { <-ctx.Done(); return nil }, holdfast.WithSlots(2))
		})
		synctest.Wait()
		r.expect(t, map[string]map[string]string{
			"holdfast.waiting": {"lock=pool": "1", "lock=semaphore": "0"}, "holdfast.leader": nil, "holdfast.leader.transitions": nil,
		})
		cancel()
		runners.Wait()
	})
}

// With WithLeaders a lock that Do holds counts as leadership.
func TestMetricsOfANamedLeader(t *testing.T) {
	r := newRig(t, otelholdfast.WithLeaders(func(name string) bool { return name == "leader" }))
	c := r.client(t, memory.New())
	for _, name := range []string{"leader", "job"} {
		err := c.Do(t.Context(), name, func(context.Context) error {
			if name == "leader" {
				r.expect(t, map[string]map[string]string{"holdfast.leader": {"": "1"}, "leader_election_master_status": {"": "1"}})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.expect(t, map[string]map[string]string{"holdfast.leader": {"": "0"}, "holdfast.leader.transitions": {"": "1"}})
}

// Leases of a LeaseManager and partitions are counted, and the locks that Partitions need besides are not.
func TestMetricsOfManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(t, memory.New())
		m, err := leases.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Add("a", "b", "c"); err != nil {
			t.Fatal(err)
		}
		p, err := partitions.New(c, "group", 5, func(ctx context.Context, _ int) error { <-ctx.Done(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = p.Run(ctx)
		}()
		time.Sleep(time.Minute)
		r.expect(t, map[string]map[string]string{"holdfast.held": {"": "8"}, "holdfast.partitions.owned": {"": "5"},
			"holdfast.waiting": {"": "0"}})
		got := r.collect(t)
		if h, ok := got["holdfast.renewal.batch.size"].Data.(metricdata.Histogram[int64]); !ok ||
			h.DataPoints[0].Sum <= int64(h.DataPoints[0].Count) {
			t.Errorf("no call has renewed several leases: %v", points(got["holdfast.renewal.batch.size"]))
		}
		cancel()
		<-done
		_ = m.Close(t.Context())
		r.expect(t, map[string]map[string]string{"holdfast.held": {"": "0"}, "holdfast.partitions.owned": {"": "0"}})
	})
}

// Without WithLockName no measurement has the name of a lock.
func TestNamesOnlyOnRequest(t *testing.T) {
	r := newRig(t)
	everything(r.Telemetry, "secret-tenant")
	for name, m := range r.collect(t) {
		for attributes := range points(m) {
			if strings.Contains(attributes, "secret") {
				t.Errorf("%s has %s", name, attributes)
			}
		}
	}
	short := newRig(t, otelholdfast.WithLockName(func(name string) string { return strings.SplitN(name, "-", 2)[0] }))
	everything(short.Telemetry, "secret-tenant")
	short.expect(t, map[string]map[string]string{"holdfast.overruns": {"lock=secret": "1"}})
}

// everything makes a measurement with each instrument and each attribute.
func everything(hook telemetry.Hook, name string) {
	ctx := context.Background()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for role := telemetry.Plain; role <= telemetry.Internal; role++ {
		for _, err := range []error{nil, driver.ErrHeld, driver.ErrClosed, errors.New("broken")} {
			op := telemetry.Operation{Kind: telemetry.Acquire, Name: name, Role: role}
			hook.End(hook.Begin(ctx, op), op, time.Second, err)
			hook.End(hook.Begin(gone, op), op, time.Second, err)
		}
		for _, cause := range []error{nil, driver.ErrLost, errors.New("stepped down")} {
			op := telemetry.Operation{Kind: telemetry.Hold, Name: name, Role: role, Token: 7}
			ctx := hook.Begin(ctx, op)
			hook.Renewed(ctx, op, time.Second)
			if cause != nil {
				hook.Lost(ctx, op, time.Second, cause)
			}
			hook.End(ctx, op, time.Second, cause)
		}
	}
	hold := telemetry.Operation{Kind: telemetry.Hold, Name: name}
	hook.Overrun(ctx, hold)
	hook.Dropped()
	release := telemetry.Operation{Kind: telemetry.Release, Name: name}
	hook.End(hook.Begin(ctx, release), release, time.Second, nil)
	guard := telemetry.Operation{Kind: telemetry.Guard, Name: name, Backend: "mongodb", Method: "guard"}
	hook.End(hook.Begin(ctx, guard), guard, time.Second, driver.ErrLost)
	hook.End(hook.Begin(ctx, guard), guard, time.Second, errors.New("the function's own"))
	for _, method := range operations {
		for _, err := range errorTypes {
			call := telemetry.Operation{Kind: telemetry.Call, Name: name, Backend: "mongodb", Method: method, Locks: 2}
			hook.End(hook.Begin(ctx, call), call, time.Second, err)
		}
	}
	hook.End(ctx, telemetry.Operation{Kind: 99}, 0, nil) // a kind of a later version
}

var (
	operations = []string{"acquire", "renew", "release", "inspect", "break", "break_now", "read_data", "write_data"}
	errorTypes = map[string]error{
		"": nil, "held": &driver.HeldError{}, "lost": driver.ErrLost, "conflict": driver.ErrConflict, "denied": driver.ErrDenied,
		"damaged": driver.ErrDamaged, "invalid": driver.Invalid("x", "y", "z"),
		"closed": driver.ErrClosed, "timeout": context.DeadlineExceeded, "canceled": context.Canceled, "other": errors.New("no route"),
	}
)

// Only refusals for the sake of fencing count as rejections.
func TestMetricsOfGuards(t *testing.T) {
	r := newRig(t)
	everything(r.Telemetry, "job")
	r.expect(t, map[string]map[string]string{"holdfast.fence.rejections": {"backend=mongodb": "1"}})
}

// The page lists every instrument with its kind, unit, attributes and meaning, and every value of an attribute.
func TestPageListsTheInstruments(t *testing.T) {
	content, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, otelholdfast.WithLockName(byName))
	everything(r.Telemetry, "job")
	all := r.collect(t)
	listed := map[string]bool{}
	values := map[string]string{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 2 {
			values[cells[0]] = cells[1]
		}
		if len(cells) != 6 || !strings.HasPrefix(cells[0], "`") {
			continue
		}
		name := strings.Trim(cells[0], "`")
		listed[name] = true
		m, ok := all[name]
		if !ok {
			t.Errorf("the page lists %s, which does not exist", name)
			continue
		}
		if kind := kindOf(m); kind != cells[2] {
			t.Errorf("%s is a %s, not a %s", name, kind, cells[2])
		}
		if m.Unit != cells[3] {
			t.Errorf("%s has the unit %q, not %q", name, m.Unit, cells[3])
		}
		if m.Description != cells[5] {
			t.Errorf("%s: the page says %q, the code %q", name, cells[5], m.Description)
		}
		var keys []string
		for attributes := range points(m) {
			for _, kv := range regexp.MustCompile(`([\w.]+)=`).FindAllStringSubmatch(attributes, -1) {
				if !slices.Contains(keys, kv[1]) {
					keys = append(keys, kv[1])
				}
			}
		}
		want := strings.FieldsFunc(cells[4], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(keys)
		slices.Sort(want)
		if !slices.Equal(keys, want) {
			t.Errorf("%s has the attributes %v, not %v", name, keys, want)
		}
	}
	for name := range all {
		if !listed[name] {
			t.Errorf("the page does not list %s", name)
		}
	}
	code, err := os.ReadFile("instruments.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"(holdfast\.[a-z.]+|leader_election_\w+)"`).FindAllStringSubmatch(string(code), -1) {
		if _, measured := all[m[1]]; !measured {
			t.Errorf("%s is made, and nothing measures with it", m[1])
		}
	}
	for typ := range errorTypes {
		if typ != "" && !strings.Contains(values["error.type"], "`"+typ+"`") {
			t.Errorf("the page does not list the error.type %s", typ)
		}
	}
	for attribute, name := range map[string]string{"result": "holdfast.acquire.duration", "end": "holdfast.hold.duration",
		"error.type": "holdfast.client.operation.duration"} {
		for text := range points(all[name]) {
			_, value, ok := strings.Cut(text, attribute+"=")
			if value, _, _ = strings.Cut(value, ","); ok && !strings.Contains(values[attribute], "`"+value+"`") {
				t.Errorf("the page does not list the %s %s", attribute, value)
			}
		}
	}
}

// Each meaning that an error can have is an error.type of its own.
func TestEveryMeaningIsAnErrorType(t *testing.T) {
	r := newRig(t)
	everything(r.Telemetry, "job")
	measured := strings.Join(slices.Collect(maps.Keys(points(r.collect(t)["holdfast.client.operation.duration"]))), "\n")
	code, err := os.ReadFile("../driver/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	meanings := regexp.MustCompile(`(?m)^\tErr(\w+) += Errorf`).FindAllStringSubmatch(string(code), -1)
	for _, m := range meanings {
		if typ := strings.ToLower(m[1]); m[1] != "IDReleased" && !strings.Contains(measured+",", "error.type="+typ+",") {
			t.Errorf("driver.Err%s is not measured as %s", m[1], typ)
		}
	}
	if len(meanings) < 8 {
		t.Errorf("only %d errors were found", len(meanings))
	}
}

func kindOf(m metricdata.Metrics) string {
	if s, ok := m.Data.(metricdata.Sum[int64]); ok {
		if s.IsMonotonic {
			return "counter"
		}
		return "gauge"
	}
	return "histogram"
}

func TestInvalidOptions(t *testing.T) {
	for name, o := range map[string]otelholdfast.Option{
		"nil": nil, "meters": otelholdfast.WithMeterProvider(nil), "tracers": otelholdfast.WithTracerProvider(nil),
		"name": otelholdfast.WithLockName(nil), "leaders": otelholdfast.WithLeaders(nil),
	} {
		var invalid *holdfast.InvalidError
		if _, err := otelholdfast.New(o); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
