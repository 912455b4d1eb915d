package lockertest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// errorf records a failure and goes on. With an argument that is noAnswer it may be the backend's, for a moment.
func (c *check) errorf(format string, args ...any) {
	c.record(slices.ContainsFunc(args, noAnswer), fmt.Sprintf(format, args...))
}

// wrongf is errorf for an answer that is wrong whatever the backend did.
func (c *check) wrongf(format string, args ...any) { c.record(false, fmt.Sprintf(format, args...)) }

func (c *check) record(unanswered bool, failure string) {
	const maxFailures = 20 // one fault can show in every answer
	c.failing.Lock()
	defer c.failing.Unlock()
	if len(c.failures) < maxFailures {
		c.failures = append(c.failures, failure)
		if unanswered {
			c.unanswered++
		}
	}
}

// noAnswer reports whether an argument of a failure is an error that a driver may return at any time, such as that of a server that
// is out of reach for a moment: it has none of the contract's meanings.
func noAnswer(arg any) bool {
	err, is := arg.(error)
	return is && !slices.ContainsFunc([]error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed,
		driver.ErrDenied, driver.ErrDamaged, driver.ErrIDReleased}, func(meaning error) bool { return errors.Is(err, meaning) })
}

// fatalf records a failure and ends the goroutine that calls it.
func (c *check) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	runtime.Goexit()
}

// each makes n calls, several at a time: a remote store takes a while for each, and the
// leases of the first calls must not end before the last call. It ends the clause if a call
// failed.
func (c *check) each(n int, call func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				call(i)
			}
		})
	}
	wg.Wait()
	c.failing.Lock()
	failed := len(c.failures) > 0
	c.failing.Unlock()
	if failed {
		runtime.Goexit()
	}
}

// fresh returns another Locker on the store, whose answers are checked.
func (c *check) fresh() driver.Locker {
	defer c.begin("Config.New")()
	return c.checked(c.open(c))
}

// name returns a name that was never used.
func (c *check) name() string { return "lt-" + strings.ToLower(rand.Text()[:12]) }

// long returns a TTL that does not end during a clause.
func (c *check) long() time.Duration { return c.allowed(time.Minute) }

// request returns a request for a name, with an ID of its own.
func (c *check) request(name string) driver.Request {
	id := newID()
	return driver.Request{Name: name, ID: id, Owner: "owner-" + rand.Text()[:6], TTL: c.long()}
}

// brief returns a request with the TTL of leases that expire in a clause.
func (c *check) brief(name string) driver.Request {
	req := c.request(name)
	req.TTL = c.cfg.TTL
	return req
}

// newID makes a random UUID, version 4.
func newID() driver.LeaseID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return driver.NewLeaseID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// acquire expects that the request is granted.
func (c *check) acquire(l driver.Locker, req driver.Request) driver.Lease {
	lease, err := l.TryAcquire(c.ctx, req)
	if err != nil {
		c.fatalf("TryAcquire of %q, which should be granted: %v", short(req.Name), err)
	}
	return lease
}

// held expects that the request is refused because another holds the lock.
func (c *check) held(l driver.Locker, req driver.Request) driver.Record {
	lease, err := l.TryAcquire(c.ctx, req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		c.fatalf("TryAcquire of %q, which another holds: got lease %v, error %v; want a *HeldError", short(req.Name), lease, err)
	}
	return held.Record
}

// renew expects success.
func (c *check) renew(l driver.Locker, lease driver.Lease) {
	if _, err := l.Renew(c.ctx, lease); err != nil {
		c.fatalf("Renew by the holder of %q: %v", short(lease.Name), err)
	}
}

// lost expects ErrLost.
func (c *check) lost(what string, err error) {
	if !errors.Is(err, driver.ErrLost) {
		c.errorf("%s: got error %v, want ErrLost", what, err)
	}
}

// release expects success.
func (c *check) release(l driver.Locker, lease driver.Lease) {
	if err := l.Release(c.ctx, lease); err != nil {
		c.fatalf("Release of %q: %v", short(lease.Name), err)
	}
}

// inspect expects success.
func (c *check) inspect(l driver.Locker, name string) driver.Record {
	record, err := l.Inspect(c.ctx, name)
	if err != nil {
		c.fatalf("Inspect of %q: %v", short(name), err)
	}
	return record
}

// stillHeldBy expects that lease still holds its lock.
func (c *check) stillHeldBy(what string, lease driver.Lease) {
	if _, err := c.a.Renew(c.ctx, lease); err != nil {
		c.errorf("%s: the holder's own renewal then failed: %v", what, err)
	}
	if r := c.inspect(c.b, lease.Name); r.State != driver.StateHeld || r.Token != 0 && r.Token != lease.Token {
		c.errorf("%s: the lock then was %v with token %d, want held with token %d", what, r.State, r.Token, lease.Token)
	}
	c.held(c.b, c.request(lease.Name))
}

// takeOver tries until req is granted. It expects the grant not before earliest, and not
// later than the slack after latest.
func (c *check) takeOver(l driver.Locker, req driver.Request, earliest, latest time.Time) driver.Lease {
	interval := min(max(c.cfg.TTL/20, time.Millisecond), 500*time.Millisecond)
	for {
		asked := c.now()
		lease, err := l.TryAcquire(c.ctx, req)
		if err == nil {
			if early := earliest.Sub(c.now()); early > c.tolerance(c.cfg.TTL) {
				c.errorf("the lock was granted to another at least %v before the lease could end", early)
			}
			return lease
		}
		if !errors.Is(err, driver.ErrHeld) {
			c.fatalf("waiting for a lease to end: %v", err)
		}
		if late := asked.Sub(latest); late > c.cfg.Slack {
			c.fatalf("the lock is still held %v after its lease should have ended: %v", late, err)
		}
		if left := earliest.Sub(c.now()) - c.tolerance(c.cfg.TTL) - time.Microsecond; left > 0 && left < interval {
			c.pass(c.ctx, left) // try once more just before a grant is allowed
		} else {
			c.pass(c.ctx, interval)
		}
	}
}

// expire lets time pass until leases granted so far, for ttl at most, have certainly ended.
func (c *check) expire(ttl time.Duration) {
	c.pass(c.ctx, ttl+c.tolerance(ttl)+ttl/10+2*c.cfg.ClockStep)
}

// eventually polls cond. It is for backends that show a change with a delay.
func (c *check) eventually(what string, cond func() bool) {
	for deadline := time.Now().Add(c.cfg.Slack); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.fatalf("%s: not within %v", what, c.cfg.Slack)
		}
	}
}

// short shortens a long name for a message.
func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// quoteOrNil formats data for a message.
func quoteOrNil(data []byte) string {
	if data == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", short(string(data)))
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
