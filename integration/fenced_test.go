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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/test/history"
)

// A holder's process is stopped (SIGSTOP) past its TTL, another client is granted the lock and
// writes under it, and the stopped process is continued — the first call of its Hold.Err reports
// the loss, and the storage refuses its late write.
func TestHolderStoppedPastTTL(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		name := uniqueName()
		stopped := startWorker(t, job{Role: "fenced", URL: b.url, Name: name, TTL: b.ttl})
		first := stopped.expectInt("token")
		stopped.expect("written")
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		successor := b.client(t, nil)
		h := successor.lock(name)
		granted := history.Now()
		if h.Token() <= uint64(first) {
			t.Errorf("token %d was granted after token %d", h.Token(), first)
		}
		if err := writeFenced(testContext(t), successor.Client, b.url, h); err != nil {
			t.Fatalf("the new holder's write: %v", err)
		}
		if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if valid := stopped.expectInt("valid"); time.Duration(valid) >= granted {
			t.Errorf("Hold.Err of the stopped holder was nil %v after the grant to another", time.Duration(valid)-granted)
		}
		if lost := stopped.expect("lost"); !strings.HasPrefix(lost, "true") {
			t.Errorf("Hold.Err of the stopped holder: ErrLost is %s", lost)
		}
		if refused := stopped.expect("refused"); !strings.HasPrefix(refused, "true") {
			t.Errorf("the stopped holder's write: refused is %s", refused)
		}
		if err := writeFenced(testContext(t), successor.Client, b.url, h); err != nil {
			t.Errorf("the new holder's next write: %v", err)
		}
		release(t, h)
	})
}

// runFenced takes the lock, writes, and calls Hold.Err in a loop. Once the hold is lost it tries
// another write, which the storage should refuse.
func runFenced(j job, client *holdfast.Client, _ *bufio.Scanner) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
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
	// No other goroutine of this process runs before the first check after the stop.
	runtime.GOMAXPROCS(1)
	var lastValid time.Duration // when Hold.Err was last called and returned nil
	for {
		checked := history.Now()
		if err := hold.Err(); err != nil {
			fmt.Println("valid", int64(lastValid))
			fmt.Println("lost", errors.Is(err, holdfast.ErrLost), err)
			break
		}
		lastValid = checked
	}
	err = writeFenced(ctx, client, j.URL, ignoresLoss{hold})
	fmt.Println("refused", errors.Is(err, holdfast.ErrLost), err)
	return nil
}

// tokenHold is a hold that knows its fencing token.
type tokenHold interface {
	guard.Hold
	Token() uint64
}

// ignoresLoss is a hold that never reports its loss. It stands for a process that was paused
// between its last check and its write.
type ignoresLoss struct{ *holdfast.Hold }

func (ignoresLoss) Context() context.Context { return context.Background() }
func (ignoresLoss) Err() error               { return nil }

// writeFenced writes to the backend what only the holder may write.
func writeFenced(ctx context.Context, client *holdfast.Client, locks string, hold tokenHold) error {
	if l, ok := client.Locker().(*azblob.Locker); ok {
		return writeBlob(ctx, l.Blob("fenced "+hold.Lease().Name), hold.Token())
	}
	if _, ok := client.Locker().(*postgres.Locker); ok {
		return writeRow(ctx, client, locks, hold)
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

func writeRow(ctx context.Context, client *holdfast.Client, locks string, hold tokenHold) error {
	pool, err := pgxpool.New(ctx, locks)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS work (name text PRIMARY KEY, by bigint)"); err != nil {
		return err
	}
	guard, err := postgres.NewGuard(client.Locker(), pool, pgx.TxOptions{})
	if err != nil {
		return err
	}
	return guard.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO work VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET by = excluded.by",
			hold.Lease().Name, int64(hold.Token()))
		return err
	})
}

func writeDocument(ctx context.Context, client *holdfast.Client, locks string, hold tokenHold) error {
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
