package lockertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// ledger has the tokens granted in all clauses, and the texts that no error may show.
type ledger struct {
	secrets []string

	mu      sync.Mutex
	granted map[string]map[uint64]driver.LeaseID // by name and token: the ID
}

func newLedger(secrets []string) *ledger {
	return &ledger{secrets: secrets, granted: make(map[string]map[uint64]driver.LeaseID)}
}

// grant records a grant, and reports whether another ID has the token.
func (g *ledger) grant(l driver.Lease) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.granted[l.Name] == nil {
		g.granted[l.Name] = make(map[uint64]driver.LeaseID)
	}
	id, used := g.granted[l.Name][l.Token]
	if !used {
		g.granted[l.Name][l.Token] = l.ID
	}
	return used && id != l.ID
}

// checked returns a Locker that forwards every call and checks every answer.
func (c *check) checked(l driver.Locker) driver.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		method, of := string(call.Method), call.Concerned()
		defer c.begin(method)()
		switch call.Method {
		case driver.MethodTryAcquire: // it sends another ID if the driver has released that of the request itself
			call.Request.ID = c.ids.of(of.ID)
			a := next(ctx, call)
			c.ids.note(of.ID, a.Err)
			c.checkGrant(method, call.Request, a.Lease, a.Err)
			return a
		case driver.MethodRenewBatch, driver.MethodReleaseBatch:
			a := next(ctx, call)
			c.checkResults(method, call.Leases, a.Errs)
			if call.Method == driver.MethodRenewBatch {
				if n := len(call.Leases); len(a.Leases) != n {
					c.fatalf("RenewBatch of %d leases returned %d leases", n, len(a.Leases))
				}
				for i, given := range call.Leases {
					if a.Errs[i] == nil {
						c.checkRenewed(method, given, a.Leases[i])
					}
				}
			}
			return a
		case driver.MethodRenew:
			a := next(ctx, call)
			if c.checkError(method, of.Name, of.ID.Reveal(), a.Err) == nil {
				c.checkRenewed(method, call.Lease, a.Lease)
			}
			return a
		case driver.MethodInspectBatch:
			a := next(ctx, call)
			if n := len(call.Names); len(a.Records) != n || len(a.Errs) != n {
				c.fatalf("InspectBatch of %d names returned %d records and %d errors", n, len(a.Records), len(a.Errs))
			}
			for i, name := range call.Names {
				if c.checkError(method, name, "", a.Errs[i]) == nil {
					c.checkRecord(method, name, a.Records[i])
				}
			}
			return a
		case driver.MethodList:
			yield := call.Yield
			call.Yield = func(r driver.Record, err error) bool {
				if c.checkError(method, anyName, "", err) == nil {
					c.checkRecord(method, r.Name, r)
				}
				return yield(r, err)
			}
		case driver.MethodCheck:
			report := call.Report
			call.Report = func(f driver.Finding) {
				c.checkFinding(f)
				report(f)
			}
			a := next(ctx, call)
			if a.Err != nil {
				c.checkText("Check: the error", a.Err.Error(), "")
			}
			return a
		case driver.MethodWake:
			wake := call.Wake
			call.Wake = func(up driver.Wakeup) {
				if err := up.Validate(); err != nil {
					c.errorf("Wake: %v", err)
				}
				wake(up)
			}
		case driver.MethodInspect:
			a := next(ctx, call)
			if c.checkError(method, of.Name, "", a.Err) == nil {
				c.checkRecord(method, of.Name, a.Record)
			}
			return a
		case driver.MethodClose:
			return next(ctx, call)
		}
		a := next(ctx, call)
		_ = c.checkError(method, of.Name, of.ID.Reveal(), a.Err)
		return a
	})
}

// anyName stands for any name in checkError.
const anyName = "\xff any name"

// prefix begins the text of every error.
const prefix = "holdfast: "

// checkError checks the rules for all errors, and returns err.
func (c *check) checkError(method, name, id string, err error) error {
	if err == nil {
		return nil
	}
	var meanings []error
	for _, sentinel := range []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed, driver.ErrDenied,
		driver.ErrDamaged} {
		if errors.Is(err, sentinel) {
			meanings = append(meanings, sentinel)
		}
	}
	if len(meanings) > 1 {
		c.errorf("%s: the error means several things at once, %q: %v", method, meanings, err)
	}
	if len(meanings) == 1 && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		c.errorf("%s: the error says both %q and that the context ended, after which the outcome is unknown: %v", method, meanings[0], err)
	}
	var op *driver.OpError
	switch {
	case !errors.As(err, &op):
		c.wrongf("%s: the error is no *OpError that names operation, lock and backend: %T: %v", method, err, err)
	case op.Op == "" || op.Backend == "":
		c.wrongf("%s: the OpError names operation %q and backend %q; want both: %v", method, op.Op, op.Backend, err)
	case op.Name != name && name != anyName:
		c.wrongf("%s: the OpError names lock %q, want %q: %v", method, short(op.Name), short(name), err)
	}
	var held *driver.HeldError
	if errors.As(err, &held) {
		c.checkRecord(method+"'s HeldError", name, held.Record)
		if held.Record.State == driver.StateFree {
			c.errorf("%s: the HeldError's record says that the lock is free: %+v", method, held.Record)
		}
	} else if errors.Is(err, driver.ErrHeld) {
		c.errorf("%s: ErrHeld without a *HeldError: %v", method, err)
	}
	var invalid *driver.InvalidError
	if errors.Is(err, driver.ErrInvalid) && (!errors.As(err, &invalid) || invalid.Field == "" || invalid.Rule == "") {
		c.errorf("%s: ErrInvalid without an *InvalidError that names field and rule: %v", method, err)
	}
	if text := err.Error(); !strings.HasPrefix(text, prefix) || strings.Count(text, prefix) > 1 {
		c.errorf("%s: the error's text begins with %q and has it nowhere else; see driver.Errorf and driver.ErrorText: %s", method, prefix, text)
	}
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	c.checkText(method+": the error", text, id)
	return err
}

// checkText checks that a text shows no lease ID and no secret.
func (c *check) checkText(what, text, id string) {
	if len(id) > 8 && strings.Contains(text, id) {
		c.errorf("%s shows the lease ID: %s", what, strings.ReplaceAll(text, id, "<the ID>"))
	}
	for _, secret := range c.ledger.secrets {
		if secret != "" && strings.Contains(text, secret) {
			c.errorf("%s shows a secret: %s", what, strings.ReplaceAll(text, secret, "<a secret>"))
		}
	}
}

// checkGrant checks what TryAcquire returned.
func (c *check) checkGrant(method string, req driver.Request, lease driver.Lease, err error) {
	_ = c.checkError(method, req.Name, req.ID.Reveal(), err)
	switch {
	case err != nil && lease != (driver.Lease{}):
		c.wrongf("%s returned a lease together with an error: %v, %v", method, lease, err)
	case err == nil:
		c.checkLease(method, req, lease)
	}
}

// checkLease compares a granted lease with its request.
func (c *check) checkLease(method string, req driver.Request, l driver.Lease) {
	if l.Name != req.Name || l.ID != req.ID || l.TTL != req.TTL || l.Owner != req.Owner {
		c.errorf("%s(%v) returned another's name, ID, owner or TTL: %v", method, req, l)
	}
	if l.Mode != req.Mode {
		c.errorf("%s(%v) returned a lease in the mode %v, want %v", method, req, l.Mode, req.Mode)
	}
	if l.Token == 0 {
		c.errorf("%s(%v): token 0; the first token is at least 1", method, req)
	}
	if c.ledger.grant(l) {
		c.errorf("%s(%v): token %d was granted to another ID before", method, req, l.Token)
	}
}

// checkRecord checks the rules for all records.
func (c *check) checkRecord(method, name string, r driver.Record) {
	if r.Name != name {
		c.errorf("%s: the record's Name is %q, want %q", method, short(r.Name), short(name))
	}
	if r.Remaining < 0 || r.Remaining != 0 && !r.RemainingKnown {
		c.errorf("%s: Remaining is %v and RemainingKnown %v; a time left is not negative, and 0 if unknown", method, r.Remaining,
			r.RemainingKnown)
	}
	if r.State == driver.StateFree && (r.Remaining != 0 || r.Broken) {
		c.errorf("%s: a free lock has %v left, broken %v; want neither", method, r.Remaining, r.Broken)
	}
	if r.State == driver.StateHeld && r.RemainingKnown && r.TTL != 0 && r.Remaining > r.TTL+c.tolerance(r.TTL) {
		c.errorf("%s: %v left of a TTL of %v; a waiter that watches a Revision for the TTL would replace a live lease", method, r.Remaining,
			r.TTL)
	}
	if r.TTL < 0 {
		c.errorf("%s: TTL %v is negative", method, r.TTL)
	}
	if !r.AcquiredAt.IsZero() && !r.RenewedAt.IsZero() && r.RenewedAt.Before(r.AcquiredAt) {
		c.errorf("%s: renewed at %v, before it was acquired at %v", method, r.RenewedAt, r.AcquiredAt)
	}
	if len(r.Holders) > 0 && (r.State != driver.StateHeld || !c.info.Modes.Has(driver.Shared)) {
		c.errorf("%s: a lock that is %v in the modes %v has a list of %d holders; only a shared lock has one", method, r.State, c.info.Modes,
			len(r.Holders))
	}
	c.checkHistory(method, r)
}
