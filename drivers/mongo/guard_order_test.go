package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The later holder uses the guard between the older one's last read of the lock's record (step
// 4) and its last write (5).
func TestGuardLaterHolderBeforeTheLastWrite(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	came := false
	g.hooks.before("update "+FencesCollection, func() {
		came = true
		b := g.follow(a, "secret b")
		g.must(b, g.note("b"))
	})
	g.wantErr(g.do(a, g.note("a")), ErrFenced)
	if !came {
		t.Error("the older holder's last write was not sent")
	}
	g.wantLines("b")
}

// The later holder uses the guard between the older one's last write (5) and its commit (6).
// It must wait, and see what the older one wrote.
func TestGuardLaterHolderBeforeTheCommit(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	var following sync.WaitGroup
	var committed atomic.Bool
	g.hooks.before("commitTransaction", func() {
		b := g.follow(a, "secret b") // the transaction does not block it
		raising := make(chan struct{})
		g.hooks.before("findAndModify "+FencesCollection, func() { close(raising) })
		following.Go(func() {
			err := g.do(b, func(ctx context.Context) error {
				n, err := g.journal.CountDocuments(ctx, bson.D{})
				if err == nil && n != 1 {
					err = fmt.Errorf("the later holder's function saw %d lines of the older one's", n)
				}
				return errors.Join(err, g.note("b")(ctx))
			})
			if err != nil {
				t.Error(err)
			}
			if !committed.Load() {
				t.Error("the later holder did not wait for the older one's commit")
			}
		})
		<-raising
		time.Sleep(300 * time.Millisecond) // enough for the later holder to continue if it did not wait
		committed.Store(true)
	})
	g.must(a, g.note("a"))
	following.Wait()
	g.wantLines("a b")
}

// An open guarded transaction does not delay renewals, a release, a takeover, or the next
// holder's whole guarded transaction.
func TestGuardDoesNotBlockTheLock(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	err := g.do(a, func(ctx context.Context) error {
		if err := g.note("a")(ctx); err != nil {
			return err
		}
		// A transaction would block them for 60 s. The Locker ignores the session in the
		// context.
		quick, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		for range 5 {
			if _, err := g.locker.Renew(quick, a.lease); err != nil {
				t.Errorf("renewal: %v", err)
			}
		}
		if err := g.locker.Release(quick, a.lease); err != nil {
			t.Errorf("release: %v", err)
		}
		b := testHold{ctx: quick}
		var err error
		if b.lease, err = g.locker.TryAcquire(quick, request("job", "secret b")); err != nil {
			t.Errorf("takeover: %v", err)
		}
		if err := g.guard.Do(quick, b, g.note("b")); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		return nil
	})
	g.wantErr(err, driver.ErrLost)
	g.wantLines("b")
}

// A renewal after the transaction's snapshot is no conflict, and a function may run longer
// than one TTL.
func TestGuardOutlastsTheTTL(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	g := newSharedGuardFixture(t)
	const ttl = 10 * time.Second // a busy machine may renew late
	a := g.hold("secret a", ttl)
	runs := 0
	g.must(a, func(ctx context.Context) error {
		runs++
		if err := g.note("a")(ctx); err != nil {
			return err
		}
		for begin := time.Now(); time.Since(begin) < ttl+ttl/20; time.Sleep(50 * time.Millisecond) {
			if _, err := g.locker.Renew(ctx, a.lease); err != nil {
				return err
			}
		}
		return nil
	})
	if runs != 1 {
		t.Errorf("the function was run %d times", runs)
	}
	g.wantLines("a")
}

// TestGuardHistory has many holders that outlive their leases without noticing. Their writes
// do not conflict: only the guard orders them.
func TestGuardHistory(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	g := newSharedGuardFixture(t)
	if err := g.journal.Database().CreateCollection(t.Context(), g.journal.Name()); err != nil {
		t.Fatal(err)
	}
	history, err := g.journal.Watch(t.Context(), mongo.Pipeline{}) // events come in the order of the commits
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close(t.Context())
	var accepted, refused, fenced atomic.Int64
	var holders sync.WaitGroup
	for i := range 4 {
		holders.Go(func() {
			met := func() bool { return accepted.Load() > 0 && refused.Load()+fenced.Load() > 0 }
			// On a slow machine a lease ends before the first commit, so the later rounds have longer ones.
			for round := 0; round < 12 || !met() && round < 60; round++ {
				h := g.hold(fmt.Sprintf("secret %d.%d", i, round), 100*time.Millisecond<<(round/12))
				for range 4 {
					err := g.do(h, func(ctx context.Context) error {
						later, err := g.journal.CountDocuments(ctx, docOf(fieldToken, docOf("$gt", int64(h.lease.Token))))
						if err == nil && later > 0 {
							t.Errorf("token %d was let in after a later one", h.lease.Token)
						}
						time.Sleep(rand.N(60 * time.Millisecond))
						_, insertErr := g.journal.InsertOne(ctx, docOf(fieldToken, int64(h.lease.Token)))
						return errors.Join(err, insertErr)
					})
					switch {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, ErrFenced):
						fenced.Add(1)
					case errors.Is(err, driver.ErrLost):
						refused.Add(1)
					default:
						t.Errorf("unexpected: %v", err)
					}
					time.Sleep(rand.N(60 * time.Millisecond))
				}
			}
		})
	}
	holders.Wait()
	t.Logf("accepted %d, refused %d, fenced off %d", accepted.Load(), refused.Load(), fenced.Load())
	if accepted.Load() == 0 || refused.Load()+fenced.Load() == 0 {
		t.Error("the test did not bring holders together")
	}
	last := int64(0)
	for i := range accepted.Load() {
		if !history.Next(bounded(t)) {
			t.Fatalf("%d transactions were accepted, %d are in the history: %v", accepted.Load(), i, history.Err())
		}
		token := history.Current.Lookup("fullDocument", fieldToken).Int64()
		if token < last {
			t.Errorf("token %d wrote after token %d", token, last)
		}
		last = token
	}
}

// The guard's last write requires its own token, in addition to the conflict with a later
// holder's raise.
func TestGuardWritesTheFenceOfItsOwnTokenOnly(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	lease := driver.Lease{Name: "job", Token: 5}
	if err := g.guard.raiseFence(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.writeFence(t.Context(), lease); err != nil {
		t.Errorf("its own token: %v", err)
	}
	later := lease
	later.Token++
	if err := g.guard.raiseFence(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.writeFence(t.Context(), lease); !errors.Is(err, ErrFenced) {
		t.Errorf("after a later holder's raise: %v, want ErrFenced", err)
	}
}

// The check of the lock's record requires the token, too: an ID that is used again is another
// grant.
func TestGuardChecksItsOwnToken(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	lease := g.hold("a", time.Minute).lease
	if err := g.guard.checkHeld(t.Context(), lease); err != nil {
		t.Error(err)
	}
	lease.Token--
	if err := g.guard.checkHeld(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
