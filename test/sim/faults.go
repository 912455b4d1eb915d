package sim

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/history"
)

// stepsOf returns when a fault begins and ends.
func (w *world) stepsOf(f Fault) []step {
	locked := func(do func()) func() {
		return func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tracef("fault", "%v", f)
			do()
		}
	}
	// ofProcess is a fault of a process that lives.
	ofProcess := func(do func(*process)) func() {
		return locked(func() {
			if p := w.processes[f.Process]; p != nil {
				do(p)
			}
		})
	}
	end := f.At + f.For
	switch f.Kind {
	case Cut:
		return []step{{f.At, ofProcess(func(p *process) { p.cut(end, f.Refuses) })}, {end, ofProcess((*process).wakeAll)}}
	case Deny:
		return []step{{f.At, ofProcess(func(p *process) { p.deniedUntil = max(p.deniedUntil, end) })}}
	case Slow:
		return []step{{f.At, ofProcess(func(p *process) { p.slowUntil, p.slow = end, f.Amount })}}
	case Lossy:
		return []step{{f.At, ofProcess(func(p *process) { p.lossyUntil, p.lossy = end, f.Chance })}}
	case Deaf:
		return []step{{f.At, ofProcess(func(p *process) { p.deafUntil, p.garbled = end, f.Amount })}}
	case Babble:
		var steps []step
		for at := f.At; at < end; at += 50 * time.Millisecond {
			steps = append(steps, step{at, ofProcess(func(p *process) {
				p.wakeAll()
				if p.queue != nil {
					p.queue.wakeAll(pick(p.dice, driver.Wakeup{Kind: driver.WakingBegan}, driver.Wakeup{}, driver.Wakeup{After: driver.TurnLength},
						driver.Wakeup{After: driver.MaxTurn}))
				}
			})})
		}
		return steps
	case Pause:
		var paused *process
		return []step{{f.At, ofProcess(func(p *process) {
			if p.pause(end) {
				paused = p
			}
		})}, {end, locked(func() {
			if paused != nil {
				paused.resume()
			}
		})}}
	case Crash, Stop:
		var ended *process
		return []step{{f.At, func() {
			p := w.processes[f.Process]
			if p == nil {
				return
			}
			w.note("fault", "%v", f)
			w.processes[f.Process], ended = nil, p
			if f.Kind == Crash {
				p.crash()
			} else {
				w.ended.Go(func() { p.stop(f.For%2 == 0) })
			}
		}}, {end, func() {
			if ended != nil && w.processes[f.Process] == nil {
				w.launch(f.Process)
			}
		}}}
	case FailOver:
		return []step{{f.At, locked(func() { w.server.failOver(end, f.Refuses) })}, {end, locked(func() {
			for _, p := range w.processes {
				if p != nil {
					p.wakeAll()
				}
			}
		})}}
	case Lag:
		return []step{{f.At, locked(func() { w.server.lag, w.server.lagUntil = f.Amount, end })}}
	case StepClock:
		return []step{{f.At, locked(func() { w.server.step(f.Amount) })}}
	case Break, BreakNow, Delete:
		return []step{{f.At, locked(func() { w.server.operate(f.Kind, f.Name) })}}
	default:
		return []step{{f.At, func() { w.violate(history.Rule("plan"), "unknown fault %q", f.Kind) }}}
	}
}
