package engine

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// measuredLocker reports each call of a Locker to a hook. A Client without a hook has none, so its calls
// cost nothing.
type measuredLocker struct {
	driver.Locker
	capabilities driver.Capabilities
	hook         telemetry.Hook
	now          func() time.Duration
	backend      string
}

// measureCalls returns a Locker that reports its calls.
func measureCalls(l driver.Locker, hook telemetry.Hook, now func() time.Duration) driver.Locker {
	if hook == nil {
		return l
	}
	m := &measuredLocker{Locker: l, hook: hook, now: now, backend: driver.BackendOf(l)}
	had := l.Capabilities()
	m.capabilities = driver.Capabilities{Watcher: had.Watcher, Queue: had.Queue, Lister: had.Lister, History: had.History}
	if had.HandOverer != nil {
		m.capabilities.HandOverer = measuredHandOverer{m, had.HandOverer}
	}
	if had.BatchRenewer != nil {
		m.capabilities.BatchRenewer = measuredBatchRenewer{m, had.BatchRenewer}
	}
	if had.BatchInspector != nil {
		m.capabilities.BatchInspector = measuredBatchInspector{m, had.BatchInspector}
	}
	if had.Breaker != nil {
		m.capabilities.Breaker = measuredBreaker{m, had.Breaker}
	}
	if had.DataStore != nil {
		m.capabilities.DataStore = measuredDataStore{m, had.DataStore}
	}
	return m
}

// begin reports the beginning of a call. What it returns reports the end.
func (m *measuredLocker) begin(ctx context.Context, method, name string, locks int) (context.Context, func(error)) {
	op := telemetry.Operation{Kind: telemetry.Call, Name: name, Backend: m.backend, Method: method, Locks: locks}
	ctx = m.hook.Begin(ctx, op)
	start := m.now()
	return ctx, func(err error) { m.hook.End(ctx, op, m.now()-start, err) }
}

func (m *measuredLocker) Capabilities() driver.Capabilities { return m.capabilities }

func (m *measuredLocker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	ctx, end := m.begin(ctx, "acquire", req.Name, 1)
	l, err := m.Locker.TryAcquire(ctx, req)
	end(err)
	return l, err
}

func (m *measuredLocker) Renew(ctx context.Context, l driver.Lease) error {
	ctx, end := m.begin(ctx, "renew", l.Name, 1)
	err := m.Locker.Renew(ctx, l)
	end(err)
	return err
}

func (m *measuredLocker) Release(ctx context.Context, l driver.Lease) error {
	ctx, end := m.begin(ctx, "release", l.Name, 1)
	err := m.Locker.Release(ctx, l)
	end(err)
	return err
}

func (m *measuredLocker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	ctx, end := m.begin(ctx, "inspect", name, 1)
	r, err := m.Locker.Inspect(ctx, name)
	end(err)
	return r, err
}

type measuredHandOverer struct {
	*measuredLocker
	to driver.HandOverer
}

func (m measuredHandOverer) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	ctx, end := m.begin(ctx, "hand_over", req.Name, 1)
	l, err := m.to.HandOver(ctx, from, req)
	end(err)
	return l, err
}

type measuredBatchRenewer struct {
	*measuredLocker
	to driver.BatchRenewer
}

func (m measuredBatchRenewer) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	ctx, end := m.begin(ctx, "renew", "", len(leases))
	errs := m.to.RenewBatch(ctx, leases)
	end(worst(errs))
	return errs
}

type measuredBatchInspector struct {
	*measuredLocker
	to driver.BatchInspector
}

func (m measuredBatchInspector) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	ctx, end := m.begin(ctx, "inspect", "", len(names))
	records, errs := m.to.InspectBatch(ctx, names)
	end(worst(errs))
	return records, errs
}

// worst returns the error of a call that has one for each lock: a failure rather than a definite answer.
func worst(errs []error) (worst error) {
	for _, err := range errs {
		if !driver.OutcomeKnown(err) {
			return err
		}
		if worst == nil {
			worst = err
		}
	}
	return worst
}

type measuredBreaker struct {
	*measuredLocker
	to driver.Breaker
}

func (m measuredBreaker) Break(ctx context.Context, name string, token uint64) error {
	ctx, end := m.begin(ctx, "break", name, 1)
	err := m.to.Break(ctx, name, token)
	end(err)
	return err
}

func (m measuredBreaker) BreakNow(ctx context.Context, name string, token uint64) error {
	ctx, end := m.begin(ctx, "break_now", name, 1)
	err := m.to.BreakNow(ctx, name, token)
	end(err)
	return err
}

type measuredDataStore struct {
	*measuredLocker
	to driver.DataStore
}

func (m measuredDataStore) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	ctx, end := m.begin(ctx, "read_data", name, 1)
	data, at, err := m.to.ReadData(ctx, name)
	end(err)
	return data, at, err
}

func (m measuredDataStore) WriteData(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
	ctx, end := m.begin(ctx, "write_data", l.Name, 1)
	err := m.to.WriteData(ctx, l, data, at)
	end(err)
	return err
}
