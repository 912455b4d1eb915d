package cas

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// All readers of a lock are in one value, so the renewal of each writes it, and those that come together would refuse each
// other's writes. Within a Locker they do not: renewals of a lock's readers that come while one is under way wait for
// it, and are then one write.

// readerRenewal is the renewal of one reader.
type readerRenewal struct {
	holder string
	ttl    time.Duration
	ready  chan struct{} // closed when the renewal has a result, or must be sent

	// Locker.mu guards the rest.
	sends bool // it has to be sent, with all that wait
	done  bool
	gone  bool // its caller no longer waits
	state driver.LeaseState
	err   error
}

// renewReader renews the lease of a reader, together with the others of this Locker that wait for that. It returns the State of
// the lease.
func (l *Locker) renewReader(ctx context.Context, lease driver.Lease) (driver.LeaseState, error) {
	r := &readerRenewal{holder: lockrecord.Digest(lease.ID), ttl: lease.TTL, ready: make(chan struct{})}
	if !l.joinRenewals(lease.Name, r) {
		select {
		case <-r.ready:
		case <-ctx.Done():
		}
		if sends, state, err := l.awaitedRenewal(ctx, lease.Name, r); !sends {
			return state, err
		}
	}
	together := l.takeRenewals(lease.Name, r)
	err := errors.New("a method of the store has not returned") // it panics
	for _, one := range together {
		one.err = err
	}
	defer func() { l.endRenewals(ctx, lease.Name, together, err) }()
	var renewed *state
	err = l.change(ctx, lease.Name, l.recall(lease), func(s *state) (write bool, _ error) {
		for _, one := range together {
			if one.err = nil; !s.Renew(one.holder, one.ttl, s.now) {
				one.err = driver.ErrLost
				continue
			}
			l.lengthen(s, one.holder, one.ttl)
			write = true
		}
		renewed = s
		s.mayBeForgotten = !write // all are lost
		return write, nil
	})
	for _, one := range together {
		if err != nil {
			one.err = err
		} else if one.err == nil {
			one.state = renewed.leaseState()
		}
	}
	return r.state, r.err
}

// joinRenewals makes a renewal wait for one that is under way. It returns true if there is none.
func (l *Locker) joinRenewals(name string, r *readerRenewal) (sends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewals == nil {
		l.renewals = map[string][]*readerRenewal{}
	}
	waiting, underWay := l.renewals[name]
	if underWay {
		waiting = append(waiting, r)
	}
	l.renewals[name] = waiting
	return !underWay
}

// awaitedRenewal returns the result of a renewal that has waited. sends says that it has none, and must be sent.
func (l *Locker) awaitedRenewal(ctx context.Context, name string, r *readerRenewal) (sends bool, state driver.LeaseState, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.done:
		return false, r.state, r.err
	case ctx.Err() == nil:
		return true, driver.LeaseState{}, nil
	case r.sends:
		l.sendNext(name)
	default: // it waits still, or another sends it: then it may be done
		r.gone = true
	}
	return false, driver.LeaseState{}, ctx.Err()
}

// takeRenewals returns a renewal and those that wait.
func (l *Locker) takeRenewals(name string, r *readerRenewal) []*readerRenewal {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append([]*readerRenewal{r}, l.renewals[name]...)
	l.renewals[name] = nil
	return all
}

// endRenewals gives the others their results. If only the time of the call was over, they wait again.
func (l *Locker) endRenewals(ctx context.Context, name string, together []*readerRenewal, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if others := together[1:]; err != nil && ctx.Err() != nil {
		l.renewals[name] = append(slices.Clone(others), l.renewals[name]...)
	} else {
		for _, r := range others {
			r.done = true
			close(r.ready)
		}
	}
	l.sendNext(name)
}

// sendNext lets the first renewal that waits send. mu is held.
func (l *Locker) sendNext(name string) {
	waiting := slices.DeleteFunc(l.renewals[name], func(r *readerRenewal) bool { return r.gone }) // nobody would send it
	if len(waiting) == 0 {
		delete(l.renewals, name)
		return
	}
	next := waiting[0]
	l.renewals[name] = waiting[1:]
	next.sends = true
	close(next.ready)
}
