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

// indexName is the name of a TTL index that this driver makes.
const indexName = "holdfast_retention"

// maxRetention is what an index's expireAfterSeconds can say.
const maxRetention = math.MaxInt32 * time.Second

// ensureIndex makes the TTL index, or compares the one that is there. The index
// only tidies up, so a lack of privileges is a warning.
func (l *Locker) ensureIndex(ctx context.Context) error {
	specs, err := l.writes.Indexes().ListSpecifications(ctx)
	if err != nil && !hasCode(err, codeNamespaceNotFound) {
		return l.tolerate(ctx, err)
	}
	for _, spec := range specs {
		switch onlyField(spec.KeysDocument) {
		case fieldExpiresAt:
			return l.compareIndex(ctx, spec)
		case fieldRenewedAt, fieldAcquiredAt:
			if spec.ExpireAfterSeconds != nil {
				return driver.Invalid("TTL index "+spec.Name+" of "+l.namespace(), "on another field than "+fieldExpiresAt, "dropped: it would remove locks that are held")
			}
		}
	}
	return l.createIndex(ctx)
}

// onlyField is the field of an index on one: the server expires documents by no
// other.
func onlyField(key bson.Raw) string {
	if _, err := key.IndexErr(1); err == nil {
		return ""
	}
	return leadingField(key)
}

func leadingField(key bson.Raw) string {
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
	_, err := l.writes.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    is(fieldExpiresAt, 1),
		Options: options.Index().SetName(indexName).SetExpireAfterSeconds(l.retentionSeconds()),
	}, opts)
	if hasCode(err, codeIndexOptionsConflict, codeIndexKeyConflict) {
		// Another process made one with other settings at this moment.
		l.warn(ctx, "the TTL index has other settings", "error", err)
		return nil
	}
	return l.tolerate(ctx, err)
}

// compareIndex reports a difference, or mends it if that was asked for.
func (l *Locker) compareIndex(ctx context.Context, spec mongo.IndexSpecification) error {
	have := "none"
	if spec.ExpireAfterSeconds != nil {
		if *spec.ExpireAfterSeconds == l.retentionSeconds() {
			return nil
		}
		have = (time.Duration(*spec.ExpireAfterSeconds) * time.Second).String()
	}
	if !l.config.updateIndex {
		l.warn(ctx, "the TTL index has another retention; it stays as it is unless WithIndexUpdate is given",
			"index", spec.Name, "retention", have, "wanted", l.config.retention.String())
		return nil
	}
	err := l.writes.Database().RunCommand(ctx, doc{
		{Key: "collMod", Value: l.writes.Name()},
		{Key: "index", Value: doc{{Key: "name", Value: spec.Name}, {Key: "expireAfterSeconds", Value: l.retentionSeconds()}}},
	}).Err()
	if err != nil {
		return fmt.Errorf("change the retention of index %s from %s to %v: %w", spec.Name, have, l.config.retention, err)
	}
	return nil
}

func (l *Locker) retentionSeconds() int32 { return int32(l.config.retention / time.Second) }

// tolerate makes a missing privilege a warning.
func (l *Locker) tolerate(ctx context.Context, err error) error {
	if !hasCode(err, codeUnauthorized) {
		return err
	}
	l.warn(ctx, "abandoned locks are not cleaned up: the user may not look for, or create, the TTL index", "error", err)
	return nil
}

func (l *Locker) warn(ctx context.Context, message string, args ...any) {
	l.config.logger.WarnContext(ctx, "holdfast: "+message, append([]any{"backend", backend, "collection", l.namespace()}, args...)...)
}
