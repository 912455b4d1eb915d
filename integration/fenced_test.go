//go:build unix

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/integration/history"
)

// A holder's process is stopped (SIGSTOP) past its TTL, another is granted the lock and
// writes under it, and the stopped one is continued — its hold says at the first question
// that it is lost, and the write that it goes on with is refused by the storage.
func TestHolderStoppedPastTTL(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		name := fresh()
		stopped := newWorker(t, job{Role: "fenced", URL: b.url, Name: name, TTL: b.ttl})
		first := stopped.expectInt("token")
		stopped.expect("written")
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		heir := b.actor(t, nil)
		h := heir.lock(name)
		granted := history.Now()
		if h.Token() <= uint64(first) {
			t.Errorf("token %d after %d", h.Token(), first)
		}
		if err := writeFenced(bounded(t), heir.Client, b.url, h); err != nil {
			t.Fatalf("the new holder's write: %v", err)
		}
		if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if sure := stopped.expectInt("sure"); time.Duration(sure) >= granted {
			t.Errorf("the stopped holder asked %v after the grant to another and was told that it holds", time.Duration(sure)-granted)
		}
		if cause := stopped.expect("err"); !strings.Contains(cause, holdfast.ErrLost.Error()) {
			t.Errorf("the stopped holder was told %q", cause)
		}
		if refused := stopped.expect("refused"); !strings.HasPrefix(refused, "true") {
			t.Errorf("the stopped holder's write ended with %s", refused)
		}
		if err := writeFenced(bounded(t), heir.Client, b.url, h); err != nil {
			t.Errorf("the new holder's next write: %v", err)
		}
		release(t, h)
	})
}

// workFenced takes the lock, writes, asks its hold as fast as it can whether it still is one,
// and when it is not, goes on with a write that should have been before.
func workFenced(j job, client *holdfast.Client, _ *bufio.Scanner) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hold, err := client.Lock(ctx, j.Name)
	if err != nil {
		return err
	}
	fmt.Println("token", hold.Token())
	if err := writeFenced(ctx, client, j.URL, hold); err != nil {
		return err
	}
	fmt.Println("written")
	// Nothing else of this process gets to run before the first question after the stop.
	runtime.GOMAXPROCS(1)
	var sure time.Duration // when the last question was asked whose answer was good
	for {
		asked := history.Now()
		if err := hold.Err(); err != nil {
			fmt.Println("sure", int64(sure))
			fmt.Println("err", err)
			break
		}
		sure = asked
	}
	err = writeFenced(ctx, client, j.URL, heedless{hold})
	fmt.Println("refused", errors.Is(err, holdfast.ErrLost), err)
	return nil
}

// tokened is a hold, or what is left of one.
type tokened interface {
	mongo.Hold
	Token() uint64
}

// heedless is a hold whose owner does not notice that it has ended, as a process does
// not that is paused between its last look and its write.
type heedless struct{ *holdfast.Hold }

func (heedless) Context() context.Context { return context.Background() }
func (heedless) Err() error               { return nil }

// writeFenced writes what only the holder may, where the backend keeps such things.
func writeFenced(ctx context.Context, client *holdfast.Client, locks string, hold tokened) error {
	if l, ok := client.Locker().(*azblob.Locker); ok {
		return writeBlob(ctx, l.Blob("fenced "+hold.Lease().Name), hold.Token())
	}
	return writeDocument(ctx, client, locks, hold)
}

func writeBlob(ctx context.Context, b *blockblob.Client, token uint64) error {
	for {
		fence, err := azblob.NewFence(ctx, b.BlobClient(), token)
		if err != nil {
			return err
		}
		_, err = b.UploadBuffer(ctx, []byte("work"), &blockblob.UploadBufferOptions{AccessConditions: fence.Conditions, Metadata: fence.Metadata})
		var refused *azcore.ResponseError
		if !errors.As(err, &refused) || refused.ErrorCode != "ConditionNotMet" {
			return err
		}
	}
}

func writeDocument(ctx context.Context, client *holdfast.Client, locks string, hold tokened) error {
	u, err := url.Parse(locks)
	if err != nil {
		return err
	}
	server, err := mongodriver.Connect(options.Client().ApplyURI(locks))
	if err != nil {
		return err
	}
	defer func() { _ = server.Disconnect(context.WithoutCancel(ctx)) }()
	db := server.Database(strings.TrimPrefix(u.Path, "/"))
	guard, err := mongo.NewGuard(client.Locker(), db)
	if err != nil {
		return err
	}
	return guard.Do(ctx, hold, func(ctx context.Context) error {
		_, err := db.Collection("work").UpdateOne(ctx, bson.D{{Key: "_id", Value: hold.Lease().Name}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "by", Value: int64(hold.Token())}}}}, options.UpdateOne().SetUpsert(true))
		return err
	})
}
