// Ledger posts entries to an account under a lock. Each write carries the holder's fencing token,
// so that the write of a holder that was stopped, and comes too late, is refused by MongoDB.
//
// Start it in two terminals, stop the one that posts with Ctrl-Z, wait until the other posts, and
// continue the first with fg:
//
//	go run ./examples/ledger -uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
//
// README.md shows the screen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	uri := flag.String("uri", "mongodb://127.0.0.1:27017/?replicaSet=rs0", "connection string of MongoDB")
	name := flag.String("name", defaultName(), "name of this instance")
	ttl := flag.Duration("ttl", 10*time.Second, "how long others wait for a holder that is stopped")
	think := flag.Duration("think", 2*time.Second, "time between the decision to post an entry and the write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := ledger{out: os.Stdout, name: *name, think: *think}
	if err := l.run(ctx, *uri, *ttl); err != nil {
		log.Fatal(err)
	}
}

func defaultName() string {
	host, _ := os.Hostname()
	return host + "/" + strconv.Itoa(os.Getpid())
}

// ledger is one instance.
type ledger struct {
	out      io.Writer
	name     string
	think    time.Duration
	accounts *mongo.Collection
}

// run takes part until ctx ends.
func (l *ledger) run(ctx context.Context, uri string, ttl time.Duration) (err error) {
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(db.Disconnect)) }()
	app := db.Database("holdfast_ledger")
	l.accounts = app.Collection("accounts")
	locker, err := holdmongo.New(ctx, app.Collection(holdmongo.DefaultCollection))
	if err != nil {
		return err
	}
	client, err := holdfast.New(locker, holdfast.WithTTL(ttl), holdfast.WithOwner(l.name),
		holdfast.WithLogger(slog.New(slog.DiscardHandler))) // the screen belongs to the ledger
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(client.Shutdown)) }()
	runner, err := holdfast.NewLeaderAwareRunner(client, "ledger",
		holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: 10 * time.Second}),
		holdfast.WithObserver(l.observe))
	if err != nil {
		return err
	}
	if err := runner.Run(ctx, l.post); ctx.Err() == nil {
		return err
	}
	return nil // the instance was stopped
}

func (l *ledger) observe(e holdfast.Event) {
	switch e.Type {
	case holdfast.EventHolderSeen:
		l.printf("waits: %s holds the lock, token %d", e.Owner, e.Token)
	case holdfast.EventLost:
		l.printf("has lost the lock: %v", e.Err)
	case holdfast.EventError:
		l.printf("%v", e)
	}
}

// post posts entries until ctx ends.
func (l *ledger) post(ctx context.Context) error {
	token, _ := holdfast.TokenFromContext(ctx)
	l.printf("holds the lock, token %d", token)
	for ctx.Err() == nil {
		l.printf("decides to post 10")
		// A process can be stopped at any moment: here, between the decision and the write, it is
		// most likely. So that the screen shows what the token is for, this program does not
		// look at ctx again before it writes. Even a program that looks can be stopped after that.
		time.Sleep(l.think)
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := l.credit(writing, holdmongo.Fence(token), 10)
		cancel()
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// credit adds to the balance unless a later holder has written to the account.
func (l *ledger) credit(ctx context.Context, fence holdmongo.Fence, amount int) error {
	var account struct {
		Balance int
		Fence   int64
	}
	after := options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
	err := l.accounts.FindOneAndUpdate(ctx,
		fence.Filter(bson.D{{Key: "_id", Value: "alice"}}),
		bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}},
			{Key: "$set", Value: bson.D{fence.Mark()}},
		}, after).Decode(&account)
	if mongo.IsDuplicateKeyError(err) { // the account exists, and the fence did not match
		if err := l.accounts.FindOne(ctx, bson.D{{Key: "_id", Value: "alice"}}).Decode(&account); err != nil {
			return err
		}
		l.printf("REFUSED: the write has token %d, the account has %d already; balance %d", fence, account.Fence, account.Balance)
		return nil
	}
	if err != nil {
		return err
	}
	l.printf("has posted %d under token %d: balance %d", amount, fence, account.Balance)
	return nil
}

func (l *ledger) printf(format string, args ...any) {
	fmt.Fprintf(l.out, "%s %s %s\n", time.Now().Format(time.TimeOnly), l.name, fmt.Sprintf(format, args...))
}

// withTimeLimit calls a cleanup function with a time limit of its own, since ctx may have ended.
func withTimeLimit(cleanup func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cleanup(ctx)
}
