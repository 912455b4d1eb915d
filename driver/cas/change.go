package cas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// A write that lost its condition is repeated after a random time of at most the backoff, which doubles.
const (
	minBackoff = 2 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
	maxWrites  = 40
	// maxJoins is how often a refused request tries to write its position in the queue, without which it polls.
	maxJoins = 8
)

// state is a record as it was read, for one decision.
type state struct {
	record
	now     lockstate.Moment
	version string // of the value; empty if there is none
	// writes is how many writes this call has tried, and inDoubt whether the outcome of one of them is unknown.
	writes  int
	inDoubt bool
	// service says that what is to be written is a service, such as a position in a queue: the outcome of the
	// call does not depend on it.
	service bool
	// grants says that what is to be written is a grant, and mayBeForgotten that the call has succeeded although the write is not safe.
	grants, mayBeForgotten bool
	// recalled says that the record was not read, but is that of a lease's State.
	recalled bool
	// asked is when, by this process's clock, the time was concluded by which a recalled state was judged.
	asked time.Duration
	// extends is for how long the decision has extended the lease, or 0, and ends when the lease ends; see lengthen.
	extends, ends time.Duration
	// unsure says that the store does not know the age of the lease. withheld is then the end that the lease counts with, and
	// lapsed the one that it has.
	unsure           bool
	undated          bool // nor any time of a renewal
	withheld, lapsed time.Duration
	// order is that of a value without data.
	order uint64
	// written is the value after it was written.
	written []byte
}

// load reads the record of a name. Without one it is a new record that is not stored.
func (l *Locker) load(ctx context.Context, name string) (*state, error) {
	key := lockrecord.Key(name)
	asked := l.elapsed()
	v, err := l.get(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.read(key, name, v, asked)
}

// read makes the state of a value. asked is the elapsed time when the read of it began.
func (l *Locker) read(key, name string, v Value, asked time.Duration) (*state, error) {
	s, err := l.stateOf(key, name, v)
	if err == nil {
		err = l.judge(s, v.Now, asked)
	}
	return s, err
}

// stateOf makes the state of a value, without the time.
func (l *Locker) stateOf(key, name string, v Value) (*state, error) {
	s := &state{record: record{Name: name}, version: v.Version}
	if v.Order > MaxOrder && len(v.Data) == 0 {
		return nil, fmt.Errorf("the store returned the order %d: at most %d is possible", v.Order, uint64(MaxOrder))
	}
	if v.Version == "" {
		s.order = v.Order
		return s, nil
	}
	var err error
	if v.Other != nil && len(v.Data) == 0 {
		s.record, err = bare(key, name)
		s.order = v.Order
	} else {
		s.record, err = decode(key, name, v.Data, l.config.Info.Expiry)
	}
	if v.Other != nil && err == nil {
		s.overlay(*v.Other, l.config.ClockStep)
	}
	s.undated = v.Other != nil && v.Other.RenewedAt.IsZero()
	if s.unsure = v.Unsure || s.undated; s.unsure && err == nil && len(s.Readers) > 0 {
		return nil, errUnsureReaders
	}
	return s, err
}

// errUnsureReaders refuses what cannot be judged: which of the readers count as valid, and until when.
var errUnsureReaders = errors.New("the lock has readers, and the clocks of the store's servers disagree: wait until they agree")

// change lets decide read or change the record of a name, and stores the record if decide says so. If another
// has changed it meanwhile, or the outcome of the write is unknown, the record is read and decided on anew.
//
// first, if not nil, is the record as the lease's State has it: decide gets it first, and the record is read only if
// that leads to no write, or the store refuses the write.
//
// Promise 5: so the record itself says whether a write whose reply was lost was done. decide recognizes its own
// work: the holder, the position, the revision of the data.
func (l *Locker) change(ctx context.Context, name string, first *state, decide func(*state) (write bool, err error)) (err error) {
	wrote := false // the store was called to write: only then can anything have changed
	defer func() {
		if !wrote {
			err = driverutil.Unsent(err)
		}
	}()
	var doubt error     // why the last write was not done, or why that is unknown
	var doubtful string // the version on which that write depends
	writes, inDoubt := 0, false
	refused := ""      // what marks the value that was based on first, if its write was refused
	var present *state // the value that came with the refusal of the last write
	pauseFirst := false
	notSafe := false // a write of this call was done, or may have been, and none was confirmed: it may be forgotten
	for {
		var err error
		s := first
		if first = nil; s == nil {
			s, present = present, nil
		}
		if s == nil {
			s, err = l.load(ctx, name)
		}
		if err != nil {
			if doubt == nil {
				return err
			}
			if err = plain(err); ctx.Err() != nil || writes >= maxWrites {
				return err
			}
			writes++ // these reads count too
			if err := l.pauseFor(ctx, writes, doubt); err != nil {
				return err
			}
			continue
		}
		if refused != "" {
			writes++ // It may have been done all the same: the client library of the store may have repeated the request.
			refused = ""
		}
		s.writes, s.inDoubt = writes, inDoubt
		write, err := decide(s)
		if s.recalled && (!write || err != nil || s.service) {
			continue // Promise 4: what is not there any more refuses nobody.
		}
		if notSafe && err == nil && s.version != "" && !s.mayBeForgotten {
			write = true // what is written already is written again
		}
		if !write || err != nil {
			if doubt != nil && s.version == doubtful {
				return errPending(doubt)
			}
			return err
		}
		if pauseFirst { // after the backoff it is read: others write, too
			if err := l.pauseFor(ctx, writes, doubt); err != nil {
				return err
			}
			pauseFirst = false
			continue
		}
		asked := l.elapsed()
		wrote = true
		err = l.save(ctx, s)
		present = l.refusing(s, err, asked)
		switch {
		case err == nil:
			return nil
		case s.recalled && errors.Is(err, ErrConflict):
			refused = s.Unique
			continue // The decision was based on an old value, and counts for nothing.
		case s.service && !errors.Is(err, ErrConflict):
			if doubt != nil && s.version == doubtful {
				return errPending(doubt)
			}
			return nil
		case errors.Is(err, ErrNotSafe) && s.mayBeForgotten:
			return nil
		case errors.Is(err, ErrNotSafe) && s.grants:
			return err
		case doubt == nil && driver.Lasting(err):
			return err // Nothing was written, and nothing will be.
		case !s.service:
			// A conflict is in doubt, too: the client library of a store may have repeated the request. A lease that
			// was cut short is extended like one whose renewal has no answer.
			doubt, doubtful = plain(err), s.version
			inDoubt = inDoubt || !errors.Is(err, ErrConflict)
			notSafe = notSafe || errors.Is(err, ErrNotSafe) ||
				l.config.Info.Failover == driver.GrantsMayBeForgotten && !errors.Is(err, ErrConflict)
		}
		if writes++; writes >= maxWrites {
			return driver.Errorf("after %d writes that were not done: %w", writes, doubt)
		}
		if pauseFirst = present != nil; pauseFirst {
			continue // a value that leads to no write needs no backoff
		}
		if err := l.pauseFor(ctx, writes, doubt); err != nil {
			return err
		}
	}
}

// refusing makes the state of the value that came with the refusal of a write of s, or nil. asked is the elapsed time when
// the write began.
func (l *Locker) refusing(s *state, err error, asked time.Duration) *state {
	var r *RefusedError
	if !errors.As(err, &r) || r.Present.Version == "" || r.Present.Version == s.version {
		return nil
	}
	now, err := l.read(lockrecord.Key(s.Name), s.Name, r.Present, asked)
	if err != nil {
		return nil // the value is read, which returns the error
	}
	return now
}

// errPending is the error of a call that would not write what it tried to write before, although that write can
// still be done: the present version is the one on which it depends.
func errPending(doubt error) error {
	return fmt.Errorf("an earlier write can still be done (%s)", driver.ErrorText(doubt))
}

// save writes the record of a state, if nobody else has changed it.
func (l *Locker) save(ctx context.Context, s *state) error {
	l.raiseToken(s) // the next value has data, and no order
	rec := s.record
	if s.withheld > 0 && s.extends == 0 && rec.Expires == s.withheld {
		rec.Expires = s.lapsed // for others, who may know better
	}
	rec.Expiry = l.config.Info.Expiry.String()
	rec.KeepTenures(l.config.Info.History)
	if l.config.Info.Expiry == driver.ByServer {
		rec.Used = s.now.Elapsed
	} else {
		rec.Expires = 0 // it has a meaning in this process only
	}
	data, err := rec.encode()
	s.Unique = rec.Unique
	if err != nil {
		return driver.Damaged(fmt.Errorf("encoding the record: %w", err))
	}
	// Promise 1: the record is replaced only if it is the one on which the decision was made.
	done, err := l.put(ctx, lockrecord.Key(s.Name), data, s.version)
	if err != nil {
		return err
	}
	if l.config.Info.Expiry == driver.ByObservation {
		l.see(s)
	} else if s.cutShort(done.Now, l.elapsed()-s.asked) {
		return errCutShort
	}
	s.version, s.written = done.Version, data
	return nil
}

// raiseToken makes the token of a record that was not stored before greater than those of a value that was deleted.
//
// Promise 3: time and order never go back, and the writes of a value that was deleted have raised the order. Its later tokens
// can be ahead of the clock: by a step, by the time of a call (see storeClock), and after a step back.
func (l *Locker) raiseToken(s *state) {
	if s.order > 0 {
		ahead := l.config.ClockStep + l.config.CallLimit + maxStepBack
		s.RaiseToken(max(s.Token, uint64(max(0, s.now.Wall.UnixMilli()))) + s.order + uint64(ahead.Milliseconds()))
		s.order = 0
	}
}

// errCutShort means that a write was done, but gave the lease less than its TTL, or may have. It is repeated after a read.
var errCutShort = errors.New("the store's clock has stepped forward, or the write did not return it")

// pauseFor is pause, whose error says why the write is repeated.
func (l *Locker) pauseFor(ctx context.Context, writes int, doubt error) error {
	err := l.pause(ctx, writes)
	if err != nil && doubt != nil {
		return fmt.Errorf("%w (%s)", err, driver.ErrorText(doubt))
	}
	return err
}

// pause waits before a write is repeated.
func (l *Locker) pause(ctx context.Context, writes int) error {
	if !retry.Wait(ctx, minBackoff/2+rand.N(retry.Delay(writes-1, minBackoff, maxBackoff))) {
		return fmt.Errorf("while waiting to repeat a write: %w", ctx.Err())
	}
	return nil
}
