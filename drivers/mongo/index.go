package mongo

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// indexName is the name of the TTL index that this driver creates.
const indexName = "holdfast_retention"

// maxRetention is the greatest expireAfterSeconds of an index.
const maxRetention = math.MaxInt32 * time.Second

// indexRetryInterval is the wait before the index is created again after a fail-over.
const indexRetryInterval = 200 * time.Millisecond

// ensureIndex creates the TTL index, or compares the existing one. A fail-over at the start of a program
// interrupts that. The Go driver does not repeat it, so it is repeated here, within the time limit of a request.
func (l *Locker) ensureIndex(ctx context.Context) error {
	for {
		err := l.tryEnsureIndex(ctx)
		if !interruptedByFailOver(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(indexRetryInterval):
		}
	}
}

// tryEnsureIndex creates the TTL index, or compares the existing one. The index only removes abandoned records,
// so missing privileges are a warning.
func (l *Locker) tryEnsureIndex(ctx context.Context) error {
	specs, err := l.majority.Indexes().ListSpecifications(ctx)
	if err != nil && !hasCode(err, codeNamespaceNotFound) {
		return l.warnUnauthorized(ctx, err)
	}
	for _, spec := range specs {
		switch soleField(spec.KeysDocument) {
		case fieldExpiresAt:
			return l.compareIndex(ctx, spec)
		case fieldRenewedAt, fieldAcquiredAt:
			if spec.ExpireAfterSeconds != nil {
				// Promise 1: the record of a held lock must not disappear.
				return driver.Invalid("TTL index "+spec.Name+" of "+l.namespace(), "on another field than "+fieldExpiresAt,
					"dropped: it would remove locks that are held")
			}
		}
	}
	return l.createIndex(ctx)
}

// soleField returns the field of an index on one field. The server expires documents by such
// indexes only.
func soleField(key bson.Raw) string {
	if _, err := key.IndexErr(1); err == nil {
		return ""
	}
	return firstField(key)
}

func firstField(key bson.Raw) string {
	first, err := key.IndexErr(0)
	if err != nil {
		return ""
	}
	return first.Key()
}

func (l *Locker) createIndex(ctx context.Context) error {
	opts := options.CreateIndexes()
	if !l.standalone {
		opts.SetCommitQuorumMajority() // the default waits for members that are down
	}
	_, err := l.majority.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    docOf(fieldExpiresAt, 1),
		Options: options.Index().SetName(indexName).SetExpireAfterSeconds(l.retentionSeconds()),
	}, opts)
	if hasCode(err, codeIndexOptionsConflict, codeIndexKeyConflict) {
		// Another process created one with other settings at the same moment.
		l.warn(ctx, "the TTL index has other settings", "error", err)
		return nil
	}
	return l.warnUnauthorized(ctx, err)
}

// compareIndex logs a difference, or corrects it with [WithIndexUpdate].
func (l *Locker) compareIndex(ctx context.Context, spec mongo.IndexSpecification) error {
	have := "none"
	if spec.ExpireAfterSeconds != nil {
		if *spec.ExpireAfterSeconds == l.retentionSeconds() {
			return nil
		}
		have = (time.Duration(*spec.ExpireAfterSeconds) * time.Second).String()
	}
	if !l.config.updateIndex {
		l.warn(ctx, "the TTL index has another retention; use WithIndexUpdate to change it",
			"index", spec.Name, "retention", have, "wanted", l.config.retention.String())
		return nil
	}
	err := l.majority.Database().RunCommand(ctx, doc{
		{Key: "collMod", Value: l.majority.Name()},
		{Key: "index", Value: doc{{Key: "name", Value: spec.Name}, {Key: "expireAfterSeconds", Value: l.retentionSeconds()}}},
	}).Err()
	if err != nil {
		return fmt.Errorf("change the retention of index %s from %s to %v: %w", spec.Name, have, l.config.retention, err)
	}
	return nil
}

func (l *Locker) retentionSeconds() int32 { return int32(l.config.retention / time.Second) }

// warnUnauthorized turns a missing privilege into a warning.
func (l *Locker) warnUnauthorized(ctx context.Context, err error) error {
	if !hasCode(err, codeUnauthorized) {
		return err
	}
	l.warn(ctx, "abandoned locks are not cleaned up: the user lacks the privilege to list or create indexes", "error", err)
	return nil
}

func (l *Locker) warn(ctx context.Context, message string, args ...any) {
	l.config.logger.WarnContext(ctx, "holdfast: "+message, append([]any{"backend", backend, "collection", l.namespace()}, args...)...)
}
