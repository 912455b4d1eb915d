package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// The queues of locks are in their documents; see queue_pipeline.go. This is what a process does besides its requests.

// placeOf returns what stands for a waiter in a queue: the Locker, whose ID chooses where its hints are left, and the
// waiter of that Locker. Neither is a secret.
func placeOf(locker string, waiter driver.WaiterID) string {
	if waiter == "" {
		return ""
	}
	return locker + placeSeparator + string(waiter)
}

const (
	placeSeparator = "."
	placeEnd       = "/" // the character that follows it: the places of a Locker are between the two
)

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

// leaving matches the document of a queue that a waiter is in.
func leaving(name any, me string) doc {
	return doc{field(fieldName, name), field(fieldQueue+"."+fieldWaiter, me)}
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
	if hasReadersInLine(document) {
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

func hasReadersInLine(document bson.Raw) bool {
	_, ok := document.Lookup(fieldLine).ArrayOK()
	return ok
}
