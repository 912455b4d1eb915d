package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// Break implements [driver.Breaker].
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(k *lockstate.Lock, _ lockstate.Moment) bool { return k.Break() })
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(k *lockstate.Lock, now lockstate.Moment) bool {
		if !k.BreakNow(now) {
			return false
		}
		k.Expires = now.Elapsed
		return true
	})
}

func (l *Locker) breakLock(ctx context.Context, name string, target driver.BreakTarget,
	apply func(*lockstate.Lock, lockstate.Moment) bool) error {
	return l.do(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(ctx context.Context, c *pgx.Conn) error {
		k, err := readLock(ctx, c, l.sql.inspect, toText(name))
		if err != nil || k.Lock == nil {
			return err
		}
		k.Data = nil // it stays
		affects, err := k.Record(name, k.now).CheckTarget(target)
		if err != nil {
			return err
		}
		if !affects || !apply(k.Lock, k.now) { // the wait of an earlier break for a standby may have been cancelled
			_, err = c.Exec(ctx, confirmSQL)
			return err
		}
		if err := l.write(ctx, c, l.sql, toText(name), k); err != nil {
			return err
		}
		var calls wakeups
		if k.Holder == "" {
			calls.add(name, k.Lock, k.now)
		}
		l.wake(ctx, c, calls)
		return nil
	})
}
