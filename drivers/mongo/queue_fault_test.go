package mongo

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The primary dies after it has applied a release, and before any other member has it. The next
// primary never saw the release. Release must not report success before the lock is free there, and
// no waiter may have been granted the lock on the strength of the lost release.
func TestFailOverBetweenReleaseAndItsCertainty(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	// The primary must not step down by itself while the other members are frozen.
	rs := mongotest.StartReplicaSet(t, mongotest.Options{ElectionTimeout: 10 * time.Minute})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	holder := newTestLocker(t, coll, WithCommandTimeout(waitLimit))
	waiter := newTestLocker(t, coll, WithCommandTimeout(waitLimit))
	lease := acquire(t, holder, driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Hour})
	enter := request("job", "waiter")
	enter.QueueFor = time.Hour
	if r := wantHeld(t, waiter, enter); r.Position != 1 {
		t.Fatalf("position %d", r.Position)
	}
	primary, err := rs.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var others []int
	for member := range rs.Hosts() {
		if member != primary {
			others = append(others, member)
			if err := rs.Pause(member); err != nil {
				t.Fatal(err)
			}
		}
	}
	// From now on the primary applies writes, and no majority acknowledges them.
	lease.Contended = true
	released, granted := make(chan error, 1), make(chan error, 1)
	go func() { released <- holder.Release(context.WithoutCancel(t.Context()), lease) }()
	eventually(t, "the release is applied on the primary", func() bool {
		_, r, err := readRecord(bounded(t), holder.local, "job", withoutData)
		return err == nil && r != nil && r.leaseID == ""
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	go func() {
		_, err := waiter.TryAcquire(ctx, enter)
		granted <- err
	}()
	eventually(t, "the waiter's request is applied on the primary", func() bool {
		_, r, err := readRecord(bounded(t), holder.local, "job", withoutData)
		return err == nil && r != nil && r.leaseID == "waiter" || ctx.Err() != nil
	})
	if err := <-granted; err == nil { // before a release that is sent again can succeed on the next primary
		t.Error("the waiter was granted the lock although no majority had the release")
	} else {
		wantUnknown(t, err)
	}
	select {
	case err := <-released:
		t.Fatalf("the release was reported, %v, although no majority has it", err)
	default:
	}
	if err := rs.Kill(primary); err != nil {
		t.Fatal(err)
	}
	for _, member := range others {
		if err := rs.Resume(member); err != nil {
			t.Fatal(err)
		}
	}
	elect(t, rs, others)
	for err := <-released; err != nil; err = holder.Release(bounded(t), lease) { // as a Client does
		wantUnknown(t, err)
		if errors.Is(err, driver.ErrClosed) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	r, err := holder.Inspect(bounded(t), "job")
	if err != nil || r.Token == lease.Token && r.State == driver.StateHeld {
		t.Errorf("after the release was reported, the lock is %v under token %d, %v", r.State, r.Token, err)
	}
	eventually(t, "the waiter is granted the lock", func() bool {
		_, err := waiter.TryAcquire(bounded(t), enter)
		return err == nil
	})
	if _, err := holder.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the old holder's renewal: %v", err)
	}
}

// While the primary changes no hint can be left. Once the release is certain there is a primary again, and the hint is left there.
func TestHintsAreLeftAfterAFailOver(t *testing.T) {
	t.Parallel()
	holder := newVictimServer(t)
	holder.open(t, &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" { // the read by which the release becomes certain
			holder.spare(t)
		}
	}})
	lease := acquire(t, holder.Locker, longRequest("job", "holder"))
	lease.Contended = true
	c, l := newProcess(t, holder.base, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	defer holder.spare(t)
	holder.fail(t, "alwaysOn", list{"insert"}, field("errorCode", codeInterruptedByStateChange),
		field("errorLabels", list{"RetryableWriteError"}))
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	awaitHold(t, got, "by the hint")
}

// While the primary changes no hint of the last command of a call can be left. It is left on the next primary.
func TestHintsAtTheEndOfACallAreLeftAfterAFailOver(t *testing.T) {
	t.Parallel()
	v := newVictimServer(t)
	var first time.Time // the time limit of the first try of a call
	v.open(t, &event.CommandMonitor{Started: func(ctx context.Context, e *event.CommandStartedEvent) {
		limit, _ := ctx.Deadline()
		switch {
		case e.CommandName != "insert":
		case first.IsZero():
			first = limit
		case limit.After(first): // the second try
			v.spare(t)
		}
	}})
	waiting := newTestLocker(t, v.base)
	if err := sendHint(t, v.Locker, "job", waiting.id, 1); err != nil { // now it knows the collections
		t.Fatal(err)
	}
	for what, call := range map[string]struct {
		request func(name, id string) driver.Request // of the holders
		behind  bool                                 // a reader waits behind a writer, instead of a writer
		do      func(ctx context.Context, leases []driver.Lease, names []string) error
	}{
		"release of two writers": {request: longRequest, do: v.releaseAll},
		"release of two readers": {request: sharedRequest, do: v.releaseAll},
		"break": {request: longRequest, do: func(ctx context.Context, _ []driver.Lease, names []string) error {
			return v.BreakNow(ctx, names[0], driver.BreakAnybody())
		}},
		"break of a reader": {request: sharedRequest, do: func(ctx context.Context, _ []driver.Lease, names []string) error {
			return v.BreakNow(ctx, names[0], driver.BreakAnybody())
		}},
		"a writer leaves": {request: sharedRequest, behind: true, do: func(ctx context.Context, _ []driver.Lease, names []string) error {
			return v.Leave(ctx, me, names[:1])
		}},
		"a writer leaves two queues": {request: sharedRequest, behind: true,
			do: func(ctx context.Context, _ []driver.Lease, names []string) error { return v.Leave(ctx, me, names) }},
	} {
		t.Run(what, func(t *testing.T) {
			names := []string{what, what + ", another"}
			var leases []driver.Lease
			for _, name := range names {
				leases = append(leases, acquire(t, v.Locker, call.request(name, "holder of "+name)))
			}
			waiter := request(names[0], "waiter")
			if call.behind {
				waiter = sharedRequest(names[0], "waiter")
				for _, name := range names {
					writer := request(name, "writer of "+name)
					writer.QueueFor = time.Minute
					wantHeld(t, v.Locker, writer)
				}
			}
			woken := wokenBy(t, waiting, names[0])
			waiter.QueueFor = time.Minute
			wantHeld(t, waiting, waiter)
			awaitFollowed(t, waiting, names[0])
			first = time.Time{}
			v.fail(t, "alwaysOn", list{"insert"}, field("errorCode", codeInterruptedByStateChange),
				field("errorLabels", list{"RetryableWriteError"}))
			defer v.spare(t)
			if err := call.do(bounded(t), leases, names); err != nil {
				t.Fatal(err)
			}
			wantWoken(t, woken, what)
		})
	}
}

func (v *victim) releaseAll(ctx context.Context, leases []driver.Lease, _ []string) error {
	return errors.Join(v.ReleaseBatch(ctx, leases)...)
}

// elect makes one of the members the primary, without the wait for the election timeout.
func elect(t *testing.T, rs *mongotest.ReplicaSet, members []int) {
	t.Helper()
	eventually(t, "a member is elected", func() bool {
		return slices.ContainsFunc(members, func(member int) bool {
			direct := mongotest.Connect(t, "mongodb://"+rs.Hosts()[member]+"/?directConnection=true")
			return direct.Database("admin").RunCommand(bounded(t), docOf("replSetStepUp", 1)).Err() == nil
		})
	})
}

// The server refuses the hint. The release succeeds all the same, and the waiter polls.
func TestReleaseWithoutItsHint(t *testing.T) {
	t.Parallel()
	holder := newVictim(t, nil)
	for _, closed := range []bool{false, true} {
		lease := acquire(t, holder.Locker, longRequest("job", "holder"))
		lease.Contended = closed
		c, l := newProcess(t, holder.base)
		got := lockSoon(t, c, "job", holdfast.WithPollInterval(time.Second))
		awaitFollowed(t, l, "job")
		holder.fail(t, "alwaysOn", list{"insert"}, field("closeConnection", closed), field("errorCode", 2))
		if err := holder.Release(bounded(t), lease); err != nil {
			t.Errorf("release: %v", err)
		}
		h := awaitHold(t, got, "by polling")
		holder.spare(t)
		if err := h.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// The primary is killed while a waiter follows the hints. The cursor is opened again, and the next
// hint wakes the waiter, as does a release that came meanwhile.
func TestHintsSurviveFailOvers(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	holder := newTestLocker(t, coll)
	lease := acquire(t, holder, driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Hour})
	c, l := newProcess(t, coll, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	opened := l.queue.opened()
	primary, err := rs.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := rs.Kill(primary); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cursor is open again", func() bool {
		again := l.queue.opened()
		return !again.IsZero() && again.After(opened)
	})
	releaseUntilDone := func(l *Locker, lease driver.Lease) {
		for err := l.Release(bounded(t), lease); err != nil; err = l.Release(bounded(t), lease) {
			wantUnknown(t, err)
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	releaseUntilDone(holder, lease)
	h := awaitHold(t, got, "by a hint after the fail-over")
	again, m := newProcess(t, coll, hintsOnly)
	waiting := lockSoon(t, again, "job")
	awaitFollowed(t, m, "job")
	if err := rs.Restart(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	if err := rs.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(bounded(t)); err != nil { // while the cursors are interrupted
		t.Fatal(err)
	}
	awaitHold(t, waiting, "after a release during the fail-over")
}

func (w *watcher) opened() time.Time { return w.OpenSince() }

// The primary steps down and is cut off from the others, but not from a waiter that reads its hints.
// The waiter notices that the member is behind, and reads the hints of the new primary.
func TestHintsOfAMemberThatIsBehind(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	base := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	other := newTestLocker(t, base)
	client := mongotest.Connect(t, rs.URI())
	l := newTestLocker(t, through(client, base))
	l.hints.maxLag = 3
	woken := make(chan driver.Wakeup, 100)
	defer l.Wake("job", me, func(up driver.Wakeup) { woken <- up })()
	eventually(t, "an open cursor", l.queue.isOpen)
	opened := l.queue.opened()
	deposed, err := rs.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := rs.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct := mongotest.Connect(t, "mongodb://"+rs.Hosts()[deposed]+"/?directConnection=true")
	if err := direct.Database("admin").RunCommand(bounded(t), doc{field("configureFailPoint", "stopReplProducer"),
		field("mode", "alwaysOn")}).Err(); err != nil {
		t.Fatal(err)
	}
	lease := acquireSoon(t, other, longRequest("other", "other"))
	eventually(t, "a cursor on another member", func() bool {
		_, _ = other.Renew(bounded(t), lease)              // the cluster's time moves on
		_, _ = l.local.EstimatedDocumentCount(t.Context()) // and the client of the waiter learns of it
		again := l.queue.opened()
		return !again.IsZero() && again.After(opened)
	})
	for len(woken) > 0 {
		<-woken
	}
	if err := sendHint(t, other, "job", placeOf(l.id, me), 1); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case up := <-woken:
			if up.Kind != driver.MayBeFree {
				continue // the cursor was opened
			}
		case <-time.After(waitLimit):
			t.Error("the hint on the new primary has not come")
		}
		return
	}
}

// acquireSoon acquires a lock once there is a primary.
func acquireSoon(t *testing.T, l *Locker, req driver.Request) (lease driver.Lease) {
	t.Helper()
	eventually(t, "a grant", func() (granted bool) {
		var err error
		lease, err = l.TryAcquire(bounded(t), req)
		return err == nil
	})
	return lease
}
