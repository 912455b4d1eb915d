package lockertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// checkedLocker forwards every call and checks every answer.
type checkedLocker struct {
	driver.Locker
	c *check
}

func (c *check) checked(l driver.Locker) driver.Locker { return &checkedLocker{l, c} }

// TryAcquire checks what the driver's TryAcquire returns.
func (s *checkedLocker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	lease, err := s.Locker.TryAcquire(ctx, req)
	s.c.checkGrant("TryAcquire", req, lease, err)
	return lease, err
}

// Renew checks what the driver's Renew returns.
func (s *checkedLocker) Renew(ctx context.Context, l driver.Lease) error {
	return s.c.checkError("Renew", l.Name, l.ID.Reveal(), s.Locker.Renew(ctx, l))
}

// Release checks what the driver's Release returns.
func (s *checkedLocker) Release(ctx context.Context, l driver.Lease) error {
	return s.c.checkError("Release", l.Name, l.ID.Reveal(), s.Locker.Release(ctx, l))
}

// Inspect checks what the driver's Inspect returns.
func (s *checkedLocker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	r, err := s.Locker.Inspect(ctx, name)
	if s.c.checkError("Inspect", name, "", err) == nil {
		s.c.checkRecord("Inspect", name, r)
	}
	return r, err
}

// Capabilities checks what the methods of each capability return.
func (s *checkedLocker) Capabilities() driver.Capabilities {
	a := s.Locker.Capabilities()
	if a.HandOverer != nil {
		a.HandOverer = checkedHandOverer{a.HandOverer, s.c}
	}
	if a.BatchRenewer != nil {
		a.BatchRenewer = checkedBatchRenewer{a.BatchRenewer, s.c}
	}
	if a.BatchInspector != nil {
		a.BatchInspector = checkedBatchInspector{a.BatchInspector, s.c}
	}
	if a.Lister != nil {
		a.Lister = checkedLister{a.Lister, s.c}
	}
	if a.Breaker != nil {
		a.Breaker = checkedBreaker{a.Breaker, s.c}
	}
	if a.DataStore != nil {
		a.DataStore = checkedDataStore{a.DataStore, s.c}
	}
	if a.Checker != nil {
		a.Checker = checkedChecker{a.Checker, s.c}
	}
	return a
}

type checkedHandOverer struct {
	driver.HandOverer
	c *check
}

// HandOver checks what the driver's HandOver returns.
func (s checkedHandOverer) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	lease, err := s.HandOverer.HandOver(ctx, from, req)
	s.c.checkGrant("HandOver", req, lease, err)
	if err != nil {
		s.c.checkText("HandOver: the error", fmt.Sprintf("%v %+v %#v", err, err, err), from.ID.Reveal())
	}
	return lease, err
}

type checkedBatchRenewer struct {
	driver.BatchRenewer
	c *check
}

// RenewBatch checks what the driver's RenewBatch returns.
func (s checkedBatchRenewer) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := s.BatchRenewer.RenewBatch(ctx, leases)
	if len(errs) != len(leases) {
		s.c.fatalf("RenewBatch of %d leases returned %d results", len(leases), len(errs))
	}
	for i, err := range errs {
		_ = s.c.checkError("RenewBatch", leases[i].Name, leases[i].ID.Reveal(), err)
	}
	return errs
}

type checkedBatchInspector struct {
	driver.BatchInspector
	c *check
}

// InspectBatch checks what the driver's InspectBatch returns.
func (s checkedBatchInspector) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	records, errs := s.BatchInspector.InspectBatch(ctx, names)
	if len(records) != len(names) || len(errs) != len(names) {
		s.c.fatalf("InspectBatch of %d names returned %d records and %d errors", len(names), len(records), len(errs))
	}
	for i, name := range names {
		if s.c.checkError("InspectBatch", name, "", errs[i]) == nil {
			s.c.checkRecord("InspectBatch", name, records[i])
		}
	}
	return records, errs
}

type checkedLister struct {
	driver.Lister
	c *check
}

// List checks what the driver's List returns.
func (s checkedLister) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for r, err := range s.Lister.List(ctx, prefix) {
			if err == nil {
				s.c.checkRecord("List", r.Name, r)
			} else {
				_ = s.c.checkError("List", anyName, "", err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

type checkedBreaker struct {
	driver.Breaker
	c *check
}

// Break checks what the driver's Break returns.
func (s checkedBreaker) Break(ctx context.Context, name string, token uint64) error {
	return s.c.checkError("Break", name, "", s.Breaker.Break(ctx, name, token))
}

// BreakNow checks what the driver's BreakNow returns.
func (s checkedBreaker) BreakNow(ctx context.Context, name string, token uint64) error {
	return s.c.checkError("BreakNow", name, "", s.Breaker.BreakNow(ctx, name, token))
}

type checkedDataStore struct {
	driver.DataStore
	c *check
}

// ReadData checks what the driver's ReadData returns.
func (s checkedDataStore) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	data, at, err := s.DataStore.ReadData(ctx, name)
	return data, at, s.c.checkError("ReadData", name, "", err)
}

// WriteData checks what the driver's WriteData returns.
func (s checkedDataStore) WriteData(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
	return s.c.checkError("WriteData", l.Name, l.ID.Reveal(), s.DataStore.WriteData(ctx, l, data, at))
}

// anyName stands for any name in checkError.
const anyName = "\xff any name"

// checkError checks the rules for all errors, and returns err.
func (c *check) checkError(method, name, id string, err error) error {
	if err == nil {
		return nil
	}
	var meanings []error
	for _, sentinel := range []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed} {
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
		c.errorf("%s: the error is no *OpError that names operation, lock and backend: %T: %v", method, err, err)
	case op.Op == "" || op.Backend == "":
		c.errorf("%s: the OpError names operation %q and backend %q; want both: %v", method, op.Op, op.Backend, err)
	case op.Name != name && name != anyName:
		c.errorf("%s: the OpError names lock %q, want %q: %v", method, short(op.Name), short(name), err)
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

// checkGrant checks what TryAcquire or HandOver returned.
func (c *check) checkGrant(method string, req driver.Request, lease driver.Lease, err error) {
	_ = c.checkError(method, req.Name, req.ID.Reveal(), err)
	switch {
	case err != nil && lease != (driver.Lease{}):
		c.errorf("%s returned a lease together with an error: %v, %v", method, lease, err)
	case err == nil:
		c.checkLease(method, req, lease)
	}
}

// checkLease compares a granted lease with its request.
func (c *check) checkLease(method string, req driver.Request, l driver.Lease) {
	if l.Name != req.Name || l.ID != req.ID || l.TTL != req.TTL || l.Owner != req.Owner {
		c.errorf("%s(%v) returned another's name, ID, owner or TTL: %v", method, req, l)
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
		c.errorf("%s: Remaining is %v and RemainingKnown %v; a time left is not negative, and 0 if unknown", method, r.Remaining, r.RemainingKnown)
	}
	if r.State == driver.StateFree && (r.Remaining != 0 || r.Broken) {
		c.errorf("%s: a free lock has %v left, broken %v; want neither", method, r.Remaining, r.Broken)
	}
	if r.State == driver.StateHeld && r.RemainingKnown && r.TTL != 0 && r.Remaining > r.TTL+c.tolerance(r.TTL) {
		c.errorf("%s: %v left of a TTL of %v; a waiter that watches a Revision for the TTL would replace a live lease", method, r.Remaining, r.TTL)
	}
	if r.TTL < 0 {
		c.errorf("%s: TTL %v is negative", method, r.TTL)
	}
	if !r.AcquiredAt.IsZero() && !r.RenewedAt.IsZero() && r.RenewedAt.Before(r.AcquiredAt) {
		c.errorf("%s: renewed at %v, before it was acquired at %v", method, r.RenewedAt, r.AcquiredAt)
	}
	c.checkHistory(method, r)
}
