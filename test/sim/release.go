package sim

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// hintTimeout is how long a release takes at most to leave its hints.
const hintTimeout = time.Second

// releaseInTurns releases a lock as the driver for MongoDB does: with one command if nobody waits.
// Otherwise the release is on the primary alone when hints wake the first waiters, and a read of what a
// majority has makes it certain.
func (l *link) releaseInTurns(ctx context.Context, lease driver.Lease) error {
	s := l.w.server
	op := "release"
	send := func(decide func() answer) answer {
		defer func() { op = "release again" }()
		return l.perform(ctx, op, lease.Name, lease.ID, decide)
	}
	if !lease.Contended {
		a := send(func() answer { return s.release(lease, true) })
		if a.err != nil || a.matched {
			return a.err
		}
	}
	for range 3 {
		a := send(func() answer {
			a := s.release(lease, false)
			a.write = nil // only the primary has it
			return a
		})
		if a.err != nil {
			return a.err
		}
		l.sendHints(ctx, lease.Name, a.waiters)
		if released, err := l.released(ctx, lease, len(a.waiters) > 0); released || err != nil {
			return err
		}
	}
	return errBackend
}

// released reports, by a read of what a majority has, whether a lease has certainly no lock any more.
func (l *link) released(ctx context.Context, lease driver.Lease, woken bool) (bool, error) {
	a := l.perform(ctx, "confirm", lease.Name, driver.LeaseID{}, func() answer { return l.w.server.confirm(lease) })
	if a.err == nil && !a.matched && !woken {
		l.sendHints(ctx, lease.Name, a.waiters)
	}
	return a.err == nil && !a.matched, a.err
}

// sendHints leaves a hint for each of the first waiters of a lock.
func (l *link) sendHints(ctx context.Context, name string, waiters []woken) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	for _, one := range waiters {
		l.perform(ctx, "hint", name, driver.LeaseID{}, func() answer {
			l.w.server.hint(one.hint(name))
			return answer{}
		})
	}
}
