package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

const (
	channelPrefix = "holdfast_"
	// wakeTime limits the statement that wakes waiters.
	wakeTime = time.Second
)

// place is what stands for a waiter in a queue: the Locker, whose connection listens, and the waiter of that Locker.
// Neither is a secret.
func (l *Locker) place(waiter driver.WaiterID) string {
	if waiter == "" {
		return ""
	}
	return l.id + "." + string(waiter)
}

// payload is the text of a notification.
type payload struct {
	Name   string          `json:"name,omitempty"`
	Waiter driver.WaiterID `json:"waiter,omitempty"`
	Turn   int64           `json:"turnMilliseconds,omitempty"`
}

// wakeups are notifications to send.
type wakeups struct{ channels, payloads []string }

// add adds those for the waiters of a lock that has become free.
func (w *wakeups) add(name string, k *lockstate.Lock, now lockstate.Moment) {
	for _, waiter := range k.Woken(now) {
		locker, id, ok := strings.Cut(waiter.ID, ".")
		if !ok {
			continue // of another program
		}
		w.channels = append(w.channels, channelPrefix+locker)
		w.payloads = append(w.payloads, mustJSON(payload{Name: name, Waiter: driver.WaiterID(id),
			Turn: driver.Turn(k.Position(waiter.ID)).Milliseconds()}))
	}
}

// collect reads names of free locks with their queues, adds the waiters, and returns the names. A queue that is damaged wakes nobody.
func (w *wakeups) collect(rows pgx.Rows) (names map[string]bool, err error) {
	names = map[string]bool{}
	var name string
	var queue []byte
	var now time.Time
	var free bool
	_, err = pgx.ForEachRow(rows, []any{&name, &queue, &now, &free}, func() error {
		if !free {
			return errNotStored
		}
		names[name] = true
		if waiters, err := decodeQueue(queue); err == nil && len(waiters) > 0 {
			w.add(fromText(name), &lockstate.Lock{Queue: waiters}, moment(now))
		}
		return nil
	})
	return names, err
}

// wake sends notifications in a transaction of their own: a commit with one takes a lock of the whole database. If that fails, they are
// sent once more, by a call with a time limit of its own: the release may have taken nearly all of its own, and waiters
// that believe that they are woken poll seldom.
func (l *Locker) wake(ctx context.Context, c *pgx.Conn, calls wakeups) {
	if len(calls.channels) == 0 {
		return
	}
	send := func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, wakeTime)
		defer cancel()
		_, err := c.Exec(ctx, notifySQL, calls.channels, calls.payloads)
		return err
	}
	if send(ctx, c) == nil {
		return
	}
	l.calls.Go(func() {
		if err := l.call(l.calls.Context(), nil, send); err != nil {
			l.config.logger.Debug("holdfast: no waiter was notified, waiters poll for the released lock", "backend", backend, "error", textOf(err))
		}
	})
}

// Wake implements [driver.Waker]. A waiter without an ID is not woken.
func (l *Locker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	if waiter == "" {
		wake(driver.Wakeup{Kind: driver.WakingEnded})
		return func() {}
	}
	return l.follower.Wake(name, waiter, wake)
}

// Leave implements [driver.Queue] with a statement for every 500 names.
func (l *Locker) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	return l.do(ctx, "leave queues", "", driver.ValidateLeave(waiter, names, limits), func(ctx context.Context, c *pgx.Conn) error {
		for part := range slices.Chunk(names, batchSize) {
			texts := make([]string, len(part))
			for i, name := range part {
				texts[i] = toText(name)
			}
			if _, err := c.Exec(ctx, l.sql.leave, texts, l.place(waiter)); err != nil {
				return err
			}
		}
		return nil
	})
}
