package sim

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/history"
)

var errTask = errors.New("simulated: the task failed")

// start starts an actor. It ends with the process's ctx, or when the client shuts down.
func (p *process) start(a Actor, d dice) {
	run := map[string]func(Actor, dice){Locks: p.lock, Leads: p.lead, Ticks: p.tick, Leases: p.lease, Shares: p.share, Reads: p.readOrWrite,
		Many: p.lockSeveral}[a.Kind]
	p.actors.Go(func() { run(a, d) })
}

// lock takes a lock again and again.
func (p *process) lock(a Actor, d dice) {
	var opts []holdfast.Option
	if a.N > 1 {
		opts = append(opts, holdfast.WithSlots(a.N))
	}
	for left := 0; p.ctx.Err() == nil; {
		if left--; left < 0 {
			left = a.Burst
			if p.rest(p.ctx, d.upTo(a.MaxIdle)) != nil {
				return
			}
		}
		ctx, cancel := p.impatient(d)
		work := d.upTo(a.MaxHold)
		asked := p.ask(a.Name, a.N == 1)
		err := p.use(ctx, a.Name, asked, d, work, opts)
		cancel()
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
	}
}

// use takes a lock once, in any way, and works under it for a time.
func (p *process) use(ctx context.Context, name string, asked *ask, d dice, length time.Duration, opts []holdfast.Option) error {
	defer asked.quit()
	switch way := d.IntN(10); {
	case way < 6:
		return p.client.Do(ctx, name, func(ctx context.Context) error {
			return p.function(ctx, func(h *holdfast.Hold) error { return p.work(h, asked, d, length) })
		}, opts...)
	case way < 8:
		h, err := p.client.Lock(ctx, name, opts...)
		if err == nil {
			_ = p.work(h, asked, d, length)
			_ = h.Release(ctx)
		}
		return err
	default:
		asked.quit() // it does not queue
		h, err := p.client.TryLock(ctx, name, opts...)
		if err == nil {
			_ = p.work(h, nil, d, length)
			_ = h.Release(ctx)
		}
		return err
	}
}

// impatient is the context of a call. Some end while the first request is under way.
func (p *process) impatient(d dice) (context.Context, context.CancelFunc) {
	if d.chance(0.15) {
		return context.WithTimeout(p.ctx, d.upTo(pick(d, 30*time.Second, 2*p.w.plan.Latency)))
	}
	return p.ctx, func() {}
}

// work works under a hold for a time, and stops when its context ends.
func (p *process) work(h *holdfast.Hold, asked *ask, d dice, length time.Duration) error {
	p.track(h, asked)
	p.access(h)
	if !reads(h) && d.chance(0.1) {
		_ = h.UpdateData(h.Context(), func(old []byte) ([]byte, error) { return append(old[:min(len(old), 20)], 'x'), nil })
	}
	err := p.rest(h.Context(), length)
	if err != nil && d.chance(0.2) { // it takes a while to stop
		_ = p.rest(context.Background(), d.upTo(p.plan.TTL/6/4))
	}
	if d.chance(0.1) {
		return errTask
	}
	if d.chance(0.2) {
		late := d.upTo(length)
		p.actors.Go(func() { // a write that is late
			if p.rest(p.ctx, late) == nil {
				p.access(h)
			}
		})
	}
	return err
}

// access writes to a register that refuses tokens lower than the last one. A reader reads the register.
func (p *process) access(h *holdfast.Hold) {
	w, name, token, op := p.w, h.Name(), h.Token(), history.Write
	if reads(h) {
		token, op = 0, history.Read
	}
	w.mu.Lock()
	w.ids++
	id := w.ids
	w.line(name, p.line(history.Line{Kind: history.Call, ID: id, Op: op, Key: name, Token: token}))
	w.mu.Unlock()
	if p.rest(context.Background(), time.Millisecond) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.crashed {
		return
	}
	outcome := history.Refused
	switch {
	case op == history.Read:
		outcome, token = history.OK, w.registers[name]
	case token >= w.registers[name]:
		outcome, w.registers[name] = history.OK, token
	}
	w.line(name, p.line(history.Line{Kind: history.Return, ID: id, Token: token, Outcome: outcome}))
}

// task is a function that works under a hold, for a runner or Partitions.
func (p *process) task(run func(ctx context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.function(ctx, func(h *holdfast.Hold) error {
			p.track(h, nil)
			p.access(h)
			return run(ctx)
		})
	}
}

// runner makes a runner, and an actor that disturbs it.
func (p *process) runner(a Actor, d dice, opts ...holdfast.RunnerOption) *holdfast.LeaderAwareRunner {
	r, err := holdfast.NewLeaderAwareRunner(p.client, a.Name, opts...)
	if err != nil {
		return nil // the client has been shut down
	}
	stepDown := newDice(d.Uint64())
	p.actors.Go(func() {
		for p.rest(p.ctx, stepDown.upTo(8*time.Minute)) == nil {
			ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
			_ = r.StepDown(ctx)
			cancel()
		}
	})
	return r
}

// lead campaigns for leadership, and leads for as long as it may.
func (p *process) lead(a Actor, d dice) {
	asked := p.ask(a.Name, false)
	defer asked.quit()
	opts := []holdfast.RunnerOption{holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: 10 * time.Second}),
		holdfast.WithCoolDown(5 * time.Second)}
	if d.chance(0.5) {
		opts = append(opts, holdfast.WithStallTimeout(20*time.Second))
	}
	if d.chance(0.5) {
		health := newDice(d.Uint64())
		opts = append(opts, holdfast.WithHealthCheck(15*time.Second, func(context.Context) error {
			if !p.w.healthy() && health.chance(0.05) {
				return errTask
			}
			return nil
		}))
	}
	r := p.runner(a, d, opts...)
	for r != nil && p.ctx.Err() == nil {
		err := r.Run(p.ctx, p.task(func(ctx context.Context) error {
			end := p.w.now() + d.upTo(a.MaxHold)
			for p.w.now() < end {
				if err := p.rest(ctx, min(end-p.w.now(), 10*time.Second)); err != nil {
					return err
				}
				holdfast.Heartbeat(ctx)
			}
			switch d.IntN(4) {
			case 0:
				return errTask
			case 1:
				_ = p.rest(ctx, 30*time.Second) // a stall
			}
			return nil
		}))
		if errors.Is(err, holdfast.ErrClosed) || p.rest(p.ctx, d.upTo(time.Second)) != nil {
			return
		}
	}
}

// tick runs a task periodically, if this process leads.
func (p *process) tick(a Actor, d dice) {
	asked := p.ask(a.Name, false)
	defer asked.quit()
	r := p.runner(a, d, holdfast.WithMinHold(2*time.Second), holdfast.WithCoolDown(5*time.Second))
	for r != nil && p.rest(p.ctx, min(d.upTo(a.MaxIdle), 10*time.Second)) == nil {
		_, err := r.RunTaskOnLeader(p.ctx, p.task(func(ctx context.Context) error { return p.rest(ctx, d.upTo(a.MaxHold)) }))
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
	}
}

// lease manages the leases of a few names.
func (p *process) lease(a Actor, d dice) {
	var names []string
	for i := range a.N {
		name := leaseName(a.Name, i)
		names = append(names, name)
		asked := p.ask(name, false)
		defer asked.quit()
	}
	var m *leases.LeaseManager
	m, err := leases.New(p.client, holdfast.WithObserver(func(e holdfast.Event) {
		if e.Type != holdfast.EventAcquired {
			return
		}
		if h, ok := m.Hold(e.Name); ok {
			p.track(h, nil)
		}
	}))
	if err != nil || m.Add(names...) != nil {
		return
	}
	for p.rest(p.ctx, d.upTo(2*time.Minute)) == nil {
		if p.w.healthy() {
			continue
		}
		some := names[d.IntN(len(names)):]
		ctx, cancel := context.WithTimeout(p.ctx, d.upTo(20*time.Second))
		_ = m.Remove(ctx, some...)
		cancel()
		if p.rest(p.ctx, d.upTo(20*time.Second)) != nil || m.Add(some...) != nil {
			break
		}
	}
	<-p.ctx.Done()
	if d.chance(0.5) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.Close(ctx)
	}
}

// share takes part in a group that shares partitions.
func (p *process) share(a Actor, d dice) {
	for i := range a.N {
		asked := p.ask(partitionName(a.Name, i), false)
		defer asked.quit()
	}
	fail := newDice(d.Uint64())
	work := p.task(func(ctx context.Context) error {
		p.w.mu.Lock()
		length := fail.upTo(10 * time.Minute)
		p.w.mu.Unlock()
		if err := p.rest(ctx, length); err != nil {
			return err
		}
		return errTask
	})
	group, err := partitions.New(p.client, a.Name, a.N, func(ctx context.Context, _ int) error { return work(ctx) })
	if err != nil {
		return
	}
	_ = group.Run(p.ctx)
}
