package mongo

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// The queues of locks are in their documents; see queue_pipeline.go. This is what a process does besides its requests.

// Wake implements [driver.Waker]. It returns at once.
func (l *Locker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	if l.queue == nil || waiter == "" {
		wake(driver.Wakeup{Kind: driver.WakingEnded})
		return func() {}
	}
	return l.queue.Wake(name, waiter, wake)
}

// Leave implements [driver.Queue] with one command for one name, or two if it finds no position, and two for each [batchChunkSize] of more.
func (l *Locker) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	o := op{verb: "leave queues", invalid: driver.ValidateLeave(waiter, names, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		me := placeOf(l.id, waiter)
		if len(names) == 1 {
			err := l.leaveOne(ctx, me, names[0])
			if !worthRepeating(ctx, err) {
				return err
			}
			// It may have left, and woken nobody.
		}
		for chunk := range slices.Chunk(names, batchChunkSize) {
			in := docOf("$in", chunk)
			if _, err := l.onPrimary.UpdateMany(ctx, leaving(in, me), leaveUpdate(me)); err != nil {
				return err
			}
			if err := l.wakeReaders(ctx, in); err != nil {
				return err
			}
		}
		return nil
	})
}

// leaveOne leaves one queue, and wakes the readers whom a writer that leaves has kept waiting.
func (l *Locker) leaveOne(ctx context.Context, me, name string) error {
	reply, err := sendOnce(ctx, l.onPrimary, "findAndModify",
		field("query", leaving(name, me)), field("update", leaveUpdate(me)), field("new", true), field("fields", sharedWoken))
	if err != nil {
		return err
	}
	document, left := reply.Lookup("value").DocumentOK()
	if !left { // an earlier call may have left the queue, and failed before it woke anybody
		return l.wakeReaders(ctx, name)
	}
	if _, readers := document.Lookup(fieldLine).ArrayOK(); readers {
		l.wakeWaiters(ctx, hintsTo(name, document))
	}
	return nil
}

// wakeReaders is what leaveOne does after it has left a queue, for many names.
func (l *Locker) wakeReaders(ctx context.Context, names any) error {
	found, err := l.latest(ctx, doc{field(fieldName, names), field(fieldQueue+"."+fieldShared, true)}, sharedWoken)
	if err != nil {
		return err
	}
	var woken []hint
	for _, document := range found {
		name, _ := document.Lookup(fieldName).StringValueOK()
		woken = append(woken, hintsTo(name, document)...)
	}
	l.wakeWaiters(ctx, woken)
	return nil
}

// wokenReaders are the hints for the waiters that a change wakes, by the whole queue.
func wokenReaders(name string, document bson.Raw, queue []bson.RawValue) (all []hint) {
	now := dateOrZero(document.Lookup(fieldNow))
	k := lockstate.Lock{}
	if held := heldByReaders(document, now); held {
		k.Holder, k.Expires, k.Readers = lockstate.Shared, elapsedAt(now)+1, []lockstate.Reader{{Expires: elapsedAt(now) + 1}}
		if full, _ := document.Lookup(fieldFull).BooleanOK(); full {
			return nil
		}
	}
	for _, v := range queue {
		waiter, _ := v.DocumentOK()
		id, _ := waiter.Lookup(fieldWaiter).StringValueOK()
		polls, _ := waiter.Lookup(fieldPolls).BooleanOK()
		shared, _ := waiter.Lookup(fieldShared).BooleanOK()
		k.Queue = append(k.Queue, lockstate.Waiter{ID: id, Until: elapsedAt(dateOrZero(waiter.Lookup(fieldUntil))), Polls: polls, Shared: shared})
	}
	for _, w := range k.Woken(lockstate.Moment{Elapsed: elapsedAt(now)}) {
		turn := 1 // a lock that readers hold is free for those that join them
		if k.Holder == "" {
			turn = 1 + int(k.Turn(w.ID)/driver.TurnLength)
		}
		all = append(all, hint{name, w.ID, turn})
	}
	return all
}

// heldByReaders reports whether a reply shows a lock that readers hold.
func heldByReaders(document bson.Raw, now time.Time) bool {
	version, _ := document.Lookup(fieldVersion).AsInt64OK()
	_, held := document.Lookup(fieldLeaseID).StringValueOK()
	return version == sharedVersion && held && dateOrZero(document.Lookup(fieldExpiresAt)).After(now)
}

// elapsedAt is a time of the server's clock as lockstate has it.
func elapsedAt(at time.Time) time.Duration { return time.Duration(at.UnixNano()) }

// hintsTo are the hints for the waiters that a release wakes, from a reply that shows them (wokenFields).
//
// If readers are in the queue, one release can wake many of them, and that of one reader wakes no writer.
func hintsTo(name string, document bson.Raw) (all []hint) {
	if line, ok := document.Lookup(fieldLine).ArrayOK(); ok {
		queue, _ := line.Values()
		return wokenReaders(name, document, queue)
	}
	if heldByReaders(document, dateOrZero(document.Lookup(fieldNow))) {
		return nil
	}
	array, _ := document.Lookup(fieldWoken).ArrayOK()
	values, _ := array.Values()
	for _, value := range values {
		waiter, _ := value.DocumentOK()
		position, _ := waiter.Lookup(fieldPosition).AsInt64OK()
		if id, ok := waiter.Lookup(fieldWaiter).StringValueOK(); ok {
			all = append(all, hint{name, id, int(position)})
		}
	}
	return all
}

// wakeWaiters leaves hints for waiters at the end of a call. If a fail-over keeps them from being left, they are sent once more, to
// the next primary. That waits for an election after a primary has stepped down. One after a crash mostly takes longer than the call may,
// and other commands may follow in the caller's time: those for further leases of a batch, or for further queues to leave.
func (l *Locker) wakeWaiters(ctx context.Context, woken []hint) {
	l.leaveHints(ctx, l.leaveHints(ctx, woken))
}

// hintTimeout limits the time for hints, which the Go driver would otherwise send again until the
// time limit of the release is over.
const hintTimeout = time.Second

// leaveHints leaves hints, within hintTimeout. A hint that cannot be left is only logged: the waiters poll, too. It returns those for
// which another try makes sense.
func (l *Locker) leaveHints(ctx context.Context, woken []hint) (left []hint) {
	if len(woken) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	l.hints.send(ctx, woken, func(hints []hint, err error) {
		if !isPermanent(err) {
			left = append(left, hints...)
		}
		level := slog.LevelDebug
		if isPermanent(err) && l.hintless.CompareAndSwap(false, true) {
			level = slog.LevelWarn // once
		}
		l.config.logger.Log(ctx, level, "holdfast: no hint was left, waiters poll for the released lock",
			"name", hints[0].name, "namespace", l.namespace(), "error", err)
	})
	return left
}
