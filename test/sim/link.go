package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// What a request returns whose outcome the process does not know.
var (
	errReset    = errors.New("simulated: connection reset")
	errRefused  = errors.New("simulated: connection refused") // this one is known: nothing was sent
	errBackend  = errors.New("simulated: the backend reports a failure")
	errRollback = errors.New("simulated: the write was rolled back")
)

// link is the Locker of a process: its network to the server.
type link struct {
	p *process
	w *world
}

var limits = map[string]driver.Limits{
	Mongo: {MinTTL: 100 * time.Millisecond, MaxTTL: 24 * time.Hour, TTLStep: time.Millisecond, MaxName: 512, MaxOwner: 512, MaxData: 1 << 20,
		Poll: time.Second},
	Azure: {MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 512, MaxOwner: 512, MaxData: 1 << 20,
		Poll: 5 * time.Second},
}

// Info implements [driver.Locker].
func (l *link) Info() driver.Info {
	info := driver.Info{Backend: l.w.plan.Backend, Limits: limits[l.w.plan.Backend], Expiry: driver.ByServer, Failover: driver.GrantsSurvive,
		Free: driver.FreeRecord{Token: true, Data: true}, FixedTTL: l.w.plan.Backend == Azure}
	if l.w.plan.Backend == Mongo {
		info.Turn, info.Modes.Shared, info.WakesOnlyQueue = driver.TurnLength, true, !l.w.plan.WakesAll
	}
	return info
}

// Capabilities implements [driver.Locker]. They are those of the backend.
func (l *link) Capabilities() driver.Capabilities {
	c := driver.Capabilities{BatchInspector: l, DataStore: l}
	if l.w.plan.Backend == Mongo {
		c.BatchRenewer = l
		if l.p.plan.Wake == Hints {
			c.Waker, c.Queue = l, l
		}
	}
	return c
}

// Close implements [driver.Locker].
func (l *link) Close(context.Context) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.p.disconnect()
	return nil
}

// fate is what happens to one request.
type fate struct {
	out, back time.Duration
	lost      bool          // on the way to the backend
	unheard   bool          // the reply is lost
	prompt    bool          // the process notices a loss at once, instead of at its time limit
	late      time.Duration // the request arrives after this time, and its reply is lost
	again     time.Duration // the request arrives a second time
}

// drawFate draws what happens to a request. mu is held.
func (p *process) drawFate() fate {
	w, d := p.w, p.dice
	f := fate{out: d.upTo(w.plan.Latency), back: d.upTo(w.plan.Latency), prompt: d.chance(0.4)}
	if w.healthy() {
		return f
	}
	now, risk := w.now(), w.plan.Noise
	if now < p.slowUntil {
		f.out, f.back = f.out+d.upTo(p.slow), f.back+d.upTo(p.slow)
	}
	if now < p.lossyUntil {
		risk = max(risk, p.lossy)
	}
	if !d.chance(risk) {
		return f
	}
	lateness := func() time.Duration {
		return min(d.upTo(pick(d, time.Second, 10*time.Second, 40*time.Second)), w.plan.Heal-now)
	}
	switch d.IntN(4) {
	case 0:
		f.lost = true
	case 1:
		f.unheard = true
	case 2:
		f.late = lateness()
	case 3:
		f.again = lateness()
	}
	return f
}

// perform sends a request, which decide decides on the server, and returns its answer.
func (l *link) perform(ctx context.Context, op, name string, id driver.LeaseID, decide func() answer) answer {
	p, w := l.p, l.w
	w.mu.Lock()
	if p.closed {
		w.mu.Unlock()
		return answer{err: driver.ErrClosed}
	}
	if ctx.Err() != nil {
		w.mu.Unlock()
		return answer{err: ctx.Err()}
	}
	f := p.drawFate()
	p.count(op, name, id)
	w.mu.Unlock()
	a := l.travel(ctx, op, name, id, f, p.unlessDenied(op, decide))
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.closed && !driver.OutcomeKnown(a.err) {
		a.err = driver.ErrClosed
	}
	if w.trace != nil && p.w.trace != nil {
		result := "ok"
		if a.err != nil {
			result = a.err.Error()
		}
		w.tracef(p.name, "%s %q: %s", op, name, result)
	}
	p.noteAnswer(op, name, a.err)
	return a
}

func (l *link) travel(ctx context.Context, op, name string, id driver.LeaseID, f fate, decide func() answer) answer {
	p, w := l.p, l.w
	arrive := func() { // without anybody who waits for the answer
		if w.server.downUntil <= w.now() {
			w.tracef(p.name, "%s %q arrives late", op, name)
			w.server.answerLost = true
			decide()
			w.server.answerLost = false
			if h := w.server.holders[id.Reveal()]; h != nil {
				h.loose = true
			}
		}
	}
	if err := p.awaitRunning(ctx); err != nil {
		return answer{err: err}
	}
	sent := w.now()
	pass := p.pass
	if op == "acquire" || op == "hand over" { // a caller who gives up notices it at once
		pass = p.sleep
	}
	if err := pass(ctx, f.out); err != nil {
		if !f.lost {
			w.after(sent+f.out-w.now(), arrive)
		}
		return answer{err: err}
	}
	w.mu.Lock()
	cut := w.now() < p.cutUntil
	lost := f.lost || cut
	if lost {
		w.tracef(p.name, "%s %q is lost", op, name)
	}
	w.mu.Unlock()
	switch {
	case cut && p.cutRefuses:
		_ = p.sleep(ctx, f.back)
		return answer{err: errRefused, unsent: true}
	case lost:
		return l.fail(ctx, f)
	case f.late > 0:
		w.after(f.late, arrive)
		return l.fail(ctx, f)
	case f.again > 0:
		w.after(f.again, arrive)
	}
	a, err := l.decide(ctx, f, decide)
	if err != nil {
		return answer{err: err}
	}
	back := f.back
	if a.write != nil {
		back += a.write.at - w.now()
	}
	if err := p.pass(ctx, back); err != nil {
		return answer{err: err}
	}
	w.mu.Lock()
	undone := a.write != nil && a.write.undone
	unheard := f.unheard || w.now() < p.cutUntil
	w.mu.Unlock()
	switch {
	case unheard:
		return l.fail(ctx, f)
	case undone:
		return answer{err: errRollback}
	}
	if err := p.awaitRunning(ctx); err != nil {
		return answer{err: err}
	}
	return a
}

// decide lets the server decide, once it has a primary.
func (l *link) decide(ctx context.Context, f fate, decide func() answer) (answer, error) {
	w := l.w
	for {
		w.mu.Lock()
		wait := w.server.downUntil - w.now()
		if wait <= 0 {
			a := decide()
			w.mu.Unlock()
			return a, nil
		}
		refused := f.prompt || w.server.refuses
		w.mu.Unlock()
		if refused {
			return answer{}, errBackend
		}
		if err := l.p.sleep(ctx, wait+f.out); err != nil {
			return answer{}, err
		}
	}
}

// fail returns without an answer: soon, or when the caller's time is over.
func (l *link) fail(ctx context.Context, f fate) answer {
	wait := time.Minute
	if f.prompt {
		wait = f.back
	}
	if err := l.p.sleep(ctx, wait); err != nil {
		return answer{err: err}
	}
	return answer{err: errReset}
}

// TryAcquire implements [driver.Locker].
func (l *link) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := req.Validate(l.Info()); err != nil {
		return driver.Lease{}, err
	}
	req.Waiter = l.waiterOf(req)
	if req.QueueFor == 0 && req.Mode == driver.Shared && req.Waiter != "" {
		l.checkTry(req)
	}
	q := l.p.queue
	waits := req.QueueFor > 0 && q != nil
	queued := waits && q.Usable()
	if !queued {
		req.QueueFor = 0
	}
	if waits {
		l.checkUnwoken(req.Name, req.Waiter)
	}
	sent := l.w.now()
	a := l.perform(ctx, "acquire", req.Name, req.ID, func() answer { return l.w.server.acquire(l.p, req, queued) })
	if a.unsent && !driver.OutcomeKnown(a.err) {
		return driver.Lease{}, &driver.OpError{Op: "acquire", Backend: l.w.plan.Backend, Name: req.Name, Err: a.err, NotSent: true}
	}
	if a.again { // there is a queue
		a = l.perform(ctx, "acquire", req.Name, req.ID, func() answer { return l.w.server.acquire(l.p, req, true) })
	}
	if waits && !queued && errors.Is(a.err, driver.ErrHeld) {
		l.noteUnwoken(req.Name, req.Waiter)
	}
	if a.err == nil && l.w.plan.Backend == Azure {
		a = l.perform(ctx, "sign", req.Name, req.ID, func() answer { return l.w.server.sign(req) })
	}
	if a.err != nil {
		return driver.Lease{}, a.err
	}
	granted := driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, Token: a.token, TTL: req.TTL, Mode: req.Mode,
		Contended: a.contended}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.p.leases[leaseKey{req.Name, a.token}] = &lease{Lease: granted, sent: sent}
	return granted, nil
}

// waiterOf names the waiter of a request as a person reads it.
func (l *link) waiterOf(req driver.Request) driver.WaiterID {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	known := l.p.waiters[req.Waiter]
	if known == "" && req.Waiter != "" {
		if known = driver.WaiterID(l.p.name); req.Mode == driver.Shared {
			known += ", reading"
		}
		l.p.waiters[req.Waiter] = known
	}
	return known
}

// known is the name of a waiter that has sent a request.
func (l *link) known(waiter driver.WaiterID) driver.WaiterID {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.p.waiters[waiter]
}

// Renew implements [driver.Locker].
func (l *link) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	sent := l.w.now()
	err := l.perform(ctx, "renew", lease.Name, lease.ID, func() answer { return l.w.server.renew(lease) }).err
	l.noteRenewal(lease, sent, err)
	return lease, err
}

// noteRenewal notes what the process knows of a lease.
func (l *link) noteRenewal(renewed driver.Lease, sent time.Duration, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if known := l.p.leases[leaseKey{renewed.Name, renewed.Token}]; known != nil && known.ID == renewed.ID {
		if err == nil {
			known.late = l.w.now() > known.deadline()-clockTolerance
			known.sent = max(known.sent, sent)
		}
		known.lost = known.lost || errors.Is(err, driver.ErrLost)
	}
}

// Release implements [driver.Locker].
func (l *link) Release(ctx context.Context, lease driver.Lease) error {
	l.w.mu.Lock()
	if l.p.working[lease.ID] > 0 && !l.p.closed {
		l.w.violate(ReleaseAfterWork, "%s releases %q while its function runs", l.p.name, lease.Name)
	}
	l.w.mu.Unlock()
	if l.w.plan.Backend == Mongo {
		return l.releaseInTurns(ctx, lease)
	}
	return l.perform(ctx, "release", lease.Name, lease.ID, func() answer { return l.w.server.release(lease, false) }).err
}

// Inspect implements [driver.Locker].
func (l *link) Inspect(ctx context.Context, name string) (driver.Record, error) {
	a := l.perform(ctx, "inspect", name, driver.LeaseID{}, func() answer { return l.w.server.read("", []string{name}, true) })
	if a.err != nil {
		return driver.Record{}, a.err
	}
	return a.records[0], nil
}

// RenewBatch implements [driver.BatchRenewer].
func (l *link) RenewBatch(ctx context.Context, leases []driver.Lease) ([]driver.Lease, []error) {
	sent := l.w.now()
	a := l.perform(ctx, "renew", leases[0].Name, leases[0].ID, func() (a answer) {
		for _, lease := range leases {
			one := l.w.server.renew(lease)
			a.errs = append(a.errs, one.err)
			if one.write != nil {
				a.write = one.write // the last one is acknowledged last
			}
		}
		return a
	})
	if a.err != nil {
		return leases, slices.Repeat([]error{a.err}, len(leases))
	}
	for i, err := range a.errs {
		l.noteRenewal(leases[i], sent, err)
	}
	return leases, a.errs
}

// InspectBatch implements [driver.BatchInspector].
func (l *link) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	me := string(l.known(waiter))
	a := l.perform(ctx, "read", "", driver.LeaseID{}, func() answer { return l.w.server.read(me, names, false) })
	if a.err != nil {
		return make([]driver.Record, len(names)), slices.Repeat([]error{a.err}, len(names))
	}
	return a.records, a.errs
}

// ReadData implements [driver.DataStore].
func (l *link) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	a := l.perform(ctx, "read data", name, driver.LeaseID{}, func() answer { return l.w.server.read("", []string{name}, true) })
	return a.data, a.at, a.err
}

// WriteData implements [driver.DataStore].
func (l *link) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	return l.perform(ctx, "write data", lease.Name, lease.ID, func() answer { return l.w.server.writeData(lease, data, at) }).err
}

// watch is one call of Wake without a position in a queue, if WakesAll: every release wakes.
type watch struct {
	p       *process
	wake    func(driver.Wakeup)
	stopped bool
}

// Wake implements [driver.Waker].
func (l *link) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	if waiter != "" {
		return l.p.queue.wakeUp(name, l.known(waiter), wake)
	}
	s, w := l.w.server, &watch{p: l.p, wake: wake}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	s.watches[name] = append(s.watches[name], w)
	l.w.after(l.p.dice.upTo(l.w.plan.Latency), func() { w.deliver(true) })
	return func() {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		w.stopped = true
		s.watches[name] = slices.DeleteFunc(s.watches[name], func(o *watch) bool { return o == w })
	}
}

// deliver wakes the waiter, unless the wake-up is lost. certain says that the watch has come into
// effect, which is not lost. mu is held.
func (w *watch) deliver(certain bool) {
	p, now := w.p, w.p.w.now()
	switch {
	case w.stopped || p.closed:
	case now < p.cutUntil || !certain && now < p.deafUntil && p.garbled == 0:
	case !certain && now < p.deafUntil:
		for range p.dice.IntN(3) { // lost, late or doubled
			p.w.after(p.dice.upTo(min(p.garbled, p.w.plan.Heal-now)), func() { w.deliver(true) })
		}
	case p.frozenUntil > now:
		p.w.after(p.frozenUntil-now, func() { w.deliver(certain) })
	default:
		go w.wake(driver.Wakeup{Kind: driver.WakingBegan})
	}
}

// wakeAll wakes the process for every name that it observes. mu is held.
func (p *process) wakeAll() {
	for _, watches := range sorted(p.w.server.watches) {
		for _, w := range watches {
			if w.p == p {
				w.deliver(true)
			}
		}
	}
}
