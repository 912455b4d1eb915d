//go:build unix

package endtoend

import (
	"context"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A holder is paused (SIGSTOP) past its TTL. Another client acquires the lock within 500 ms of the
// expiry, by the server's clock, although the thread that removes expired records runs only once a
// minute. The paused holder continues its guarded write when it resumes, and the write is refused.
// A busy machine may stop this process or the servers meanwhile: that time does not count.
func TestPausedHolderIsReplacedAndFenced(t *testing.T) {
	serverprocess.Long(t, "waits for a stopped holder to lose its lock")
	t.Parallel()
	const ttl = 3 * time.Second
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	server := mongotest.Connect(t, rs.URI())
	// MongoDB's default; the servers of tests use a shorter interval.
	defaultTTLMonitor := bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 60}}
	if err := server.Database("admin").RunCommand(t.Context(), defaultTTLMonitor).Err(); err != nil {
		t.Fatal(err)
	}
	locks := server.Database(lockDatabase).Collection("guarded")
	locker, err := mongo.New(t.Context(), locks)
	if err != nil {
		t.Fatal(err)
	}
	client, err := holdfast.New(locker, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Shutdown(context.Background())

	paused := start(t, "guard", lockURL(t, rs.URI(), "guarded"), rs.URI(), t.TempDir(), ttl.String())
	first := paused.expectInt("token")
	paused.expect("written")
	if err := paused.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var before struct{ ExpiresAt time.Time }
	if err := locks.FindOne(t.Context(), bson.D{{Key: "_id", Value: lockName}}).Decode(&before); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	longestWrite := watchWrites(t, server.Database("pauses").Collection("writes"))
	hold, err := client.Lock(ctx, lockName)
	slow := longestWrite()
	if err != nil {
		t.Fatal(err)
	}
	var after struct{ AcquiredAt time.Time }
	if err := locks.FindOne(t.Context(), bson.D{{Key: "_id", Value: lockName}}).Decode(&after); err != nil {
		t.Fatal(err)
	}
	delay := after.AcquiredAt.Sub(before.ExpiresAt)
	t.Logf("acquired %v after the expiry, by the server's clock; the slowest write took %v", delay, slow)
	if delay < 0 || delay > 500*time.Millisecond+2*slow {
		t.Errorf("acquired %v after the expiry, while a write took at most %v", delay, slow)
	}
	if hold.Token() <= uint64(first) {
		t.Errorf("token %d after %d", hold.Token(), first)
	}

	// The new holder writes with its guard, then the paused holder resumes.
	db := server.Database("guarded")
	guard, err := mongo.NewGuard(locker, db)
	if err != nil {
		t.Fatal(err)
	}
	balances := db.Collection("balances")
	err = guard.Do(t.Context(), hold, func(ctx context.Context) error {
		_, err := balances.UpdateOne(ctx, bson.D{{Key: "_id", Value: "b"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "by", Value: int64(hold.Token())}}}})
		return err
	})
	if err != nil {
		t.Fatalf("the new holder's guarded write: %v", err)
	}
	if err := paused.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fields := paused.expect("refused")
	if fields[0] != "true" {
		t.Errorf("the paused holder's write was refused by %v, not as a loss", fields)
	}
	var balance struct{ By int64 }
	if err := balances.FindOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}).Decode(&balance); err != nil {
		t.Fatal(err)
	}
	if balance.By != int64(hold.Token()) {
		t.Errorf("the document was last written by token %d, want %d", balance.By, hold.Token())
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// watchWrites writes to a collection again and again until longest is called. longest returns how long
// the slowest write has taken, which includes every pause of this process and of the servers.
func watchWrites(t *testing.T, coll *mongodriver.Collection) (longest func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	slowest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for begun := time.Now(); ctx.Err() == nil; begun = time.Now() {
			_, _ = coll.InsertOne(context.WithoutCancel(ctx), bson.D{}) // a failure takes time as well
			most = max(most, time.Since(begun))
			wait(ctx, 20*time.Millisecond)
		}
		slowest <- most
	}()
	return func() time.Duration {
		cancel()
		return <-slowest
	}
}
