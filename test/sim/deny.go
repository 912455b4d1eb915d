package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Deny is a fault: the backend denies each request of a process, which has lost its rights.
const Deny = "deny"

// errNoRight changes nothing, and lasts.
var errNoRight = driver.Denied(errors.New("simulated: no right"))

// drawDenials adds times without rights. They have dice of their own, so that the rest of the plan is as it was before there were
// any. Many last longer than a lease.
func (p *Plan) drawDenials(d dice) {
	if !d.chance(0.2) {
		return
	}
	for range 1 + d.IntN(2) {
		f := Fault{Kind: Deny, At: d.between(10*time.Second, p.Heal-30*time.Second), Process: d.IntN(len(p.Processes))}
		f.For = min(d.between(time.Second, pick(d, 20*time.Second, 3*time.Minute)), p.Heal-f.At)
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// unlessDenied decides a request of the process, if it has the right to it when the request arrives.
func (p *process) unlessDenied(op string, decide func() answer) func() answer {
	return func() answer {
		switch {
		case p.w.now() >= p.deniedUntil:
			return decide()
		case op == "sign" || op == "confirm": // the request before it has changed something
			return answer{err: errBackend}
		}
		return answer{err: errNoRight}
	}
}
