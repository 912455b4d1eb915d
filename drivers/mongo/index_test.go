package mongo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestIndex(t *testing.T) {
	coll := mongotest.Collection(t)
	ctx := bounded(t)
	retention := func() time.Duration {
		t.Helper()
		specs, err := coll.Indexes().ListSpecifications(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range specs {
			if s.ExpireAfterSeconds != nil && firstField(s.KeysDocument) == fieldExpiresAt {
				return time.Duration(*s.ExpireAfterSeconds) * time.Second
			}
		}
		return 0
	}
	for _, step := range []struct {
		opts    []Option
		want    time.Duration
		warning string
	}{
		{nil, 24 * time.Hour, `msg="holdfast: there was no collection for locks, it is made" backend=mongodb collection=` +
			coll.Database().Name() + "." + coll.Name()},
		{nil, 24 * time.Hour, ""},
		{[]Option{WithRetention(2 * time.Hour)}, 24 * time.Hour, "another retention"},
		{[]Option{WithRetention(2 * time.Hour), WithIndexUpdate()}, 2 * time.Hour, ""},
	} {
		logger, text := locktest.NewLog()
		newTestLocker(t, coll, append(step.opts, WithLogger(logger))...)
		if got := retention(); got != step.want {
			t.Errorf("the index says %v, want %v", got, step.want)
		}
		if got := text.String(); !strings.Contains(got, step.warning) || step.warning == "" && got != "" {
			t.Errorf("logged %q, want %q", got, step.warning)
		}
	}
	// A TTL index on another field would remove the records of held locks.
	other := coll.Database().Collection("other")
	if _, err := other.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: docOf(fieldRenewedAt, 1),
		Options: options.Index().SetExpireAfterSeconds(10)}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(ctx, other); err == nil || !strings.Contains(err.Error(), "remove the records of locks that are held") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// The index is created without waiting for members that are down. One that another process
// created at the same moment, with other settings, is logged.
func TestIndexCreatedByTwoProcesses(t *testing.T) {
	t.Parallel()
	var log commandLog
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()))
	logger, text := locktest.NewLog()
	l := newTestLocker(t, mongotest.CollectionOf(t, client), WithLogger(logger))
	quorum := ""
	for _, c := range log.take() {
		if firstField(c) == "createIndexes" {
			quorum, _ = c.Lookup("commitQuorum").StringValueOK()
		}
	}
	if quorum != "majority" {
		t.Errorf("createIndexes with commitQuorum %q, want majority", quorum)
	}
	l.config.retention = 2 * time.Hour
	if err := l.createIndex(bounded(t)); err != nil || !strings.Contains(text.String(), "other settings") {
		t.Errorf("%v, logged %q", err, text)
	}
}

// A compound index that begins with expiresAt expires nothing.
func TestCompoundIndexIsIgnored(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	if _, err := coll.Indexes().CreateOne(bounded(t),
		mongo.IndexModel{Keys: doc{field(fieldExpiresAt, 1), field(fieldOwner, 1)}}); err != nil {
		t.Fatal(err)
	}
	newTestLocker(t, coll, WithIndexUpdate())
	specs, err := coll.Indexes().ListSpecifications(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == indexName && s.ExpireAfterSeconds != nil }) {
		t.Errorf("no TTL index among %v", specs)
	}
}

// The server's TTL thread removes a record whose retention is over. The next token is still
// greater, and the holder's renewal fails.
func TestRemovalByTheIndex(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // another server's thread may run once a minute
	defer cancel()
	lease := acquire(t, l, request("old", "a"))
	overwrite(t, coll, "old", field(fieldExpiresAt, time.Now().Add(-25*time.Hour)))
	for {
		r, err := l.Inspect(ctx, "old")
		if err != nil {
			t.Fatal(err)
		}
		if r.Token == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond) // mongotest's servers run the thread every second
	}
	if _, err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if next := acquire(t, l, request("old", "b")); next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
}
