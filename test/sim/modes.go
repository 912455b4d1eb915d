package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/history"
)

const (
	// NotStarved: without faults, nobody waits for longer than longestWait, where waiters have an order.
	NotStarved history.Rule = "starved"
	// AllOrNothing: a hold of several names has all of them when it begins, and ends with the first that ends.
	AllOrNothing history.Rule = "some of several"
)

// longestWait is how long a caller may wait for a lock that readers and writers share, or for several locks at once:
// programs hold them for 2 s at most, and at most twelve of them take turns.
const longestWait = 50 * time.Second

// readOrWrite takes a lock again and again, as a reader or alone.
func (p *process) readOrWrite(a Actor, d dice) {
	for p.rest(p.ctx, d.upTo(a.MaxIdle)) == nil {
		ctx, cancel := p.impatient(d)
		length := d.upTo(a.MaxHold)
		asked, opts := p.ask(a.Name, true), []holdfast.Option(nil)
		if asked.reads = d.IntN(a.N) > 0; asked.reads {
			opts = append(opts, holdfast.WithShared())
		}
		err := p.use(ctx, a.Name, asked, d, length, opts)
		cancel()
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
	}
}

// lockSeveral takes several locks at once again and again, in any order, and sometimes one of them alone.
func (p *process) lockSeveral(a Actor, d dice) {
	for p.rest(p.ctx, d.upTo(a.MaxIdle)) == nil {
		var names []string
		for _, i := range d.Perm(a.N)[:1+d.IntN(3)] {
			names = append(names, leaseName(a.Name, i))
		}
		if d.chance(0.1) {
			names = append(names, names[0])
		}
		ctx, cancel := p.impatient(d)
		length, asked := d.upTo(a.MaxHold), p.gather(names)
		var err error
		switch way := d.IntN(10); {
		case way < 5:
			err = p.client.DoAll(ctx, names, func(ctx context.Context) error {
				m, _ := holdfast.MultiHoldFromContext(ctx)
				return p.workUnderAll(m, names, asked, d, length, p.under)
			})
		case way < 7:
			err = p.lockAll(ctx, p.client.LockAll, names, asked, d, length)
		case way < 9:
			asked.until = asked.from // it does not wait
			err = p.lockAll(ctx, p.client.TryLockAll, names, asked, d, length)
		default:
			err = p.client.Do(ctx, names[0], func(ctx context.Context) error {
				return p.function(ctx, func(h *holdfast.Hold) error {
					asked.gathered()
					return p.work(h, nil, d, length)
				})
			})
		}
		asked.gathered()
		cancel()
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
	}
}

// lockAll works under the hold that a method of the Client returns.
func (p *process) lockAll(ctx context.Context, lock func(context.Context, []string, ...holdfast.Option) (*holdfast.MultiHold, error),
	names []string, asked *ask, d dice, length time.Duration,
) error {
	m, err := lock(ctx, names)
	if err != nil {
		return err
	}
	_ = p.workUnderAll(m, names, asked, d, length, func(_ []*holdfast.Hold, run func() error) error { return run() })
	return m.Release(ctx)
}

// workUnderAll works under a hold of several names for a time, and stops when its context ends. under calls the work.
func (p *process) workUnderAll(m *holdfast.MultiHold, names []string, asked *ask, d dice, length time.Duration,
	under func([]*holdfast.Hold, func() error) error,
) error {
	var holds []*holdfast.Hold
	for _, name := range names {
		h := m.Hold(name)
		if h == nil || h.Token() == 0 {
			p.violate(AllOrNothing, "%s has the locks %q without %q", p.name, names, name)
			return nil
		}
		holds = append(holds, h)
	}
	return under(holds, func() error {
		for _, h := range holds {
			p.track(h, nil)
		}
		asked.gathered()
		p.checkAll(m, holds)
		for _, h := range holds {
			p.access(h)
		}
		err := p.rest(m.Context(), length)
		p.checkAll(m, holds)
		if d.chance(0.1) {
			return errTask
		}
		return err
	})
}

// checkAll checks that a hold of several names has not outlived one of them.
func (p *process) checkAll(m *holdfast.MultiHold, holds []*holdfast.Hold) {
	for _, h := range holds {
		if ended := h.Err(); ended != nil && m.Err() == nil {
			p.violate(AllOrNothing, "%s still has the locks %q, although that of %q has ended: %v", p.name, m.Names(), h.Name(), ended)
		}
	}
}

func (p *process) violate(rule history.Rule, format string, args ...any) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.crashed {
		p.w.violate(rule, format, args...)
	}
}

// gather notes that a caller begins to acquire several locks. Until it has them all, leases without a hold may be its.
func (p *process) gather(names []string) *ask {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &ask{p: p, names: slices.Clone(names), from: w.now(), until: history.Never}
	for _, name := range a.names {
		p.gathering[name]++
	}
	w.several = append(w.several, a)
	return a
}

// gathered notes that a caller has all its locks, or has given up.
func (a *ask) gathered() {
	w := a.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	a.until = min(a.until, w.now())
	for _, name := range a.names {
		a.p.gathering[name]--
	}
	a.names = nil
}

// gathers reports whether a lease of a name can be that of a caller who acquires several. mu is held.
func (p *process) gathers(name string) bool { return p.gathering[name] > 0 }

// judgeWaits looks for callers that waited too long for several locks, or for one that readers and writers share.
func (w *world) judgeWaits() {
	unordered := func(p Process) bool { return p.Wake != Hints }
	if w.server.back || slices.ContainsFunc(w.plan.Processes, unordered) {
		return
	}
	all := slices.Clone(w.several)
	for _, p := range w.plan.Processes {
		for _, a := range p.Does {
			if a.Kind == Reads {
				all = append(all, w.asks[a.Name]...)
			}
		}
	}
	for _, a := range all {
		from, until := max(a.from, w.plan.Heal+w.plan.recovery()), min(a.until, w.plan.Duration)
		if until-from > longestWait {
			w.violate(NotStarved, "%s waits for %q from %v to %v", a.p.name, append(a.names, a.name), from, until)
			return
		}
	}
}
