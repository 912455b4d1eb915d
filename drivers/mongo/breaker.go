package mongo

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]. The filter of a renewal does not match a broken record, or a broken reader.
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakHolder(ctx, name, target, false)
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakHolder(ctx, name, target, true)
}

// breakHolder changes the record of the present holder, and frees it if it is set to.
func (l *Locker) breakHolder(ctx context.Context, name string, target driver.BreakTarget, free bool) error {
	o := op{verb: "break", name: name, invalid: driver.ValidateBreak(name, target, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		raw, r, err := readRecord(ctx, l.linearizable, name, withReadersWoken)
		switch {
		case err != nil || r == nil || r.leaseID == "":
			return err
		case r.version == sharedVersion:
			return l.breakReaders(ctx, r, target, free)
		}
		if affects, err := r.describe().CheckTarget(target); !affects || err != nil {
			return err
		}
		change := breakUpdate
		if free {
			change = freeUpdate
		}
		// Promise 6: the filter has the holder's lease ID, so a break that arrives late cannot
		// free the lock of the next holder.
		holder := driver.Lease{Name: name, ID: driver.NewLeaseID(r.leaseID)}
		_, err = l.updateHeld(ctx, holder, heldBy(holder), change, func(*record) bool { return true })
		if err != nil {
			return redactIDs(err, addAdvice(err, l.namespace()), []string{r.leaseID})
		}
		if free { // a waiter may have come since the read; the break is certain, and waiters poll, too
			if freed, _, err := readRecord(ctx, l.majority, name, withReadersWoken); err == nil {
				raw = freed
			}
		}
		l.wakeWaiters(ctx, hintsTo(name, raw))
		return nil
	})
}

// breakReaders is breakHolder for a record with readers: for one of them, or for all.
func (l *Locker) breakReaders(ctx context.Context, r *record, target driver.BreakTarget, free bool) error {
	var ids []string
	var tokens list
	token, only := target.Token()
	for _, one := range r.readers {
		ids = append(ids, one.id)
		if !only || uint64(one.token) == token {
			tokens = append(tokens, one.token)
		}
	}
	if len(tokens) == 0 { // nobody has the token; one whose lease has expired could still renew it
		_, err := r.describe().CheckTarget(target)
		return err
	}
	change := breakReaders(hasToken(tokens))
	if free {
		change = endReaders(hasToken(tokens), endNumber(driver.EndFreed), l.config.history)
	}
	// Promise 6: a token is that of one grant, so a break that arrives late affects no later reader.
	filter := readBy(r.name, field(readerToken, docOf("$in", tokens)))
	_, err := l.update(ctx, r.name, filter, change, withReaders, func(r *record) bool {
		return slices.ContainsFunc(r.readers, func(one reader) bool { return slices.Contains(tokens, any(one.token)) })
	})
	if err != nil {
		return redactIDs(err, addAdvice(err, l.namespace()), ids)
	}
	raw, _, err := readRecord(ctx, l.majority, r.name, withReadersWoken)
	if err == nil {
		l.wakeWaiters(ctx, hintsTo(r.name, raw))
	}
	return nil // the break is certain, and waiters poll, too
}
