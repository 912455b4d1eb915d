package mongo

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// What [Locker.Check] examines of the collection of the locks, and of those of hints.

// collection examines the collection of the locks, and what others have set up there.
func (c *checkup) collection(ctx context.Context) bool {
	var validator bson.Raw
	var unique *index
	refuses := false
	err := c.run(ctx, func(ctx context.Context) (err error) {
		validator, err = c.l.checkCollection(ctx)
		return err
	})
	if err != nil {
		c.failed(subjectCollection, driver.LevelWrong, err, "Name another collection in the URL parameter "+paramCollection+
			", in all programs at the same time; or rename this one while no program runs.")
		return true
	}
	err = c.run(ctx, func(ctx context.Context) error {
		indexes, err := c.l.listIndexes(ctx)
		if err != nil && !hasCode(err, codeUnauthorized) { // index reports that
			return err
		}
		if unique = uniqueRule(indexes); unique == nil && validator != nil {
			refuses, err = c.l.validatorRefuses(ctx, validator)
			return err
		}
		return nil
	})
	switch {
	case err != nil:
		c.failed(subjectCollection, driver.LevelDoubtful, err, "Make sure that the validator of the collection accepts the records of locks.")
	case unique != nil:
		c.Wrong(subjectCollection, "Drop the index. In mongosh:", c.l.dropIndex(unique),
			"the index %s on %s is unique: it refuses the records of locks, as a rule all but the first", unique.Name, unique.fields())
	case refuses:
		c.mend(subjectCollection, driver.LevelDoubtful,
			"the validator of "+c.l.namespace()+" refuses the record of a test lock: perhaps no lock can be acquired",
			"If locks cannot be acquired, remove the validator, or give them a collection of their own. In mongosh:",
			dropValidator(c.l.namespace()))
	default:
		c.OK(subjectCollection, "%s is an ordinary collection, or will become one", c.l.namespace())
	}
	return true
}

// index examines the TTL index.
func (c *checkup) index(ctx context.Context) bool {
	var indexes []index
	err := c.run(ctx, func(ctx context.Context) (err error) {
		indexes, err = c.l.listIndexes(ctx)
		return err
	})
	if err != nil {
		c.failed(subjectIndex, driver.LevelDoubtful, err, "Grant the privilege listIndexes.")
		return true
	}
	if wrong := wrongTTL(indexes); wrong != nil {
		c.Wrong(subjectIndex, "Drop the index. In mongosh:", c.l.dropIndex(wrong), "the index %s expires records by %s: it removes the "+
			"records of locks that are held, and two holders can overlap", wrong.Name, wrong.fields())
		return true
	}
	database, locks := c.l.majority.Database().Name(), c.l.majority.Name()
	retention := retentionIndex(indexes)
	wanted := field("expireAfterSeconds", c.l.retentionSeconds())
	create := doc{field("createIndexes", locks),
		field("indexes", list{doc{field("key", docOf(fieldExpiresAt, 1)), field("name", indexName), wanted}})}
	remedy := "Grant createIndex, so that the next start of a program makes the index, or make it in mongosh:"
	if c.user == "" { // without access control nothing can be granted
		remedy = "The next start of a program makes the index. Or make it in mongosh:"
	}
	switch {
	case len(indexes) == 0: // a collection has the index on _id; c.access has asked for the privileges
		c.OK(subjectIndex, "there is no collection %s yet: the first program makes it, with the index", c.l.namespace())
	case retention == nil:
		c.mend(subjectIndex, driver.LevelDoubtful, "there is no TTL index: the records of locks that nobody uses any more stay forever", remedy,
			mongosh(database, create))
	case !retention.removes():
		c.mend(subjectIndex, driver.LevelDoubtful, fmt.Sprintf("the index %s on %s has no expireAfterSeconds: the records of locks that nobody "+
			"uses any more stay forever", retention.Name, fieldExpiresAt),
			"Drop the index; the next start of a program makes the right one. In mongosh:", c.l.dropIndex(retention))
	case retention.after() != c.l.config.retention:
		have := retention.after()
		c.mend(subjectIndex, driver.LevelDoubtful, fmt.Sprintf("the index removes records %s after their expiry, and the URL wants %s: data and "+
			"last holders are kept for another time than expected", driver.FormatDuration(have), driver.FormatDuration(c.l.config.retention)),
			fmt.Sprintf("Give all programs the URL parameter %s=%s, or change the index in mongosh:", paramRetention, urlDuration(have)),
			mongosh(database, doc{field("collMod", locks), field("index", doc{field("name", retention.Name), wanted})}))
	default:
		c.OK(subjectIndex, "records are removed %s after their expiry or release", driver.FormatDuration(c.l.config.retention))
	}
	return true
}

// urlDuration returns a duration as a URL parameter takes it, without days and years.
func urlDuration(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	}
	return driver.FormatDuration(d)
}

// foreign looks for documents that are no lock's. The types of _id are ordered, with texts neither
// first nor last, so that the least and the greatest _id are enough.
func (c *checkup) foreign(ctx context.Context) bool {
	other := ""
	err := c.run(ctx, func(ctx context.Context) error {
		for _, order := range []int{1, -1} {
			id, err := c.l.majority.FindOne(ctx, doc{}, options.FindOne().SetSort(docOf(fieldName, order)).SetProjection(docOf(fieldName, 1))).Raw()
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil
			}
			if err != nil {
				return err
			}
			if name, isText := id.Lookup(fieldName).StringValueOK(); !isText || name == "" {
				other = "an _id of the type " + id.Lookup(fieldName).Type.String()
				if isText {
					other = "an empty _id"
				}
			}
		}
		return nil
	})
	switch {
	case err != nil:
		c.failed(subjectForeign, driver.LevelDoubtful, err, "Grant the privilege find.")
	case other != "":
		c.Doubtful(subjectForeign, "Give the locks a collection of their own (URL parameter "+paramCollection+"), or remove the other program's "+
			"documents.", "the collection has a document with %s, which is no lock's: another program seems to write here", other)
	default:
		c.OK(subjectForeign, "every document has the _id of a lock")
	}
	return true
}

// hints examines the collections by which a release wakes waiters, and follows one. It makes none.
func (c *checkup) hints(ctx context.Context) bool {
	if c.l.config.wake != WakeHints {
		c.OK(subjectHints, "not used: the URL has wake=%s", string(c.l.config.wake))
		return true
	}
	if length := len(c.l.namespace()) + len(hintsSuffix+"0"); length > maxNamespace {
		c.Doubtful(subjectHints,
			"Name a collection with a shorter name in the URL parameter "+paramCollection+", in all programs at the same time.", "the name %s is "+
				"too long: with %s0 at its end it has %d bytes, and MongoDB allows %d, so there can be no hints, and waiters poll",
			driver.Quote(c.l.namespace()), hintsSuffix, length, maxNamespace)
		return true
	}
	database, locks := c.l.majority.Database(), c.l.majority.Name()
	var found []mongo.CollectionSpecification
	exists := false
	err := c.run(ctx, func(ctx context.Context) error {
		named := bson.Regex{Pattern: "^" + regexp.QuoteMeta(locks+hintsSuffix) + "[0-9a-f]$"}
		all, err := database.ListCollectionSpecifications(ctx, docOf("name", docOf("$in", list{locks, named})))
		for _, spec := range all {
			if spec.Name == locks {
				exists = true
			} else {
				found = append(found, spec)
			}
		}
		return err
	})
	if err != nil {
		c.failed(subjectHints, driver.LevelDoubtful, err, "Grant the user the role readWrite on the database.")
		return true
	}
	for _, spec := range found {
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			continue
		}
		return c.mend(subjectHints, driver.LevelDoubtful,
			fmt.Sprintf("the collection %s is not capped, so no process can follow it: its waiters poll", spec.Name),
			"Drop it: the next waiter makes it anew. If it has data of another program, move them first. In mongosh:",
			mongosh(database.Name(), docOf("drop", spec.Name)))
	}
	switch err := c.run(ctx, func(ctx context.Context) error { return c.follow(ctx, found) }); {
	case hasCode(err, codeNoQueryPlan):
		return c.mend(subjectHints, driver.LevelDoubtful,
			"the server's parameter notablescan forbids reading a collection without an index, so no process can follow hints: waiters poll",
			"Remove notablescan from the configuration of every member, and turn it off on each. In mongosh:",
			mongosh("admin", doc{field("setParameter", 1), field("notablescan", false)}))
	case err != nil:
		c.failed(subjectHints, driver.LevelDoubtful, err, "Waiters poll until this client can follow a capped collection.")
	case len(found) == 0 && !exists:
		c.Unchecked(subjectHints, "", "not tried: there is neither a collection of locks nor one of hints yet")
	default:
		c.OK(subjectHints, "a release wakes the next waiter; %d of %d collections of hints exist, the others are made when needed", len(found),
			hintsCollections)
	}
	return true
}

// follow follows a collection of hints as a waiter does. If there is none, the server plans that for the collection of the locks.
func (c *checkup) follow(ctx context.Context, found []mongo.CollectionSpecification) error {
	h := newHints(c.l.majority, c.l.id)
	if len(found) > 0 {
		h.coll = c.l.majority.Database().Collection(found[0].Name, majorityOptions())
	}
	cursor, err := h.follow(ctx) // a cursor without documents is closed already
	if err != nil {
		return err
	}
	if err := cursor.Close(ctx); err != nil || len(found) > 0 {
		return err
	}
	read := doc{field("find", c.l.majority.Name()), field("filter", docOf(hintTo, ""))}
	return c.l.majority.Database().RunCommand(ctx, doc{field("explain", read), field("verbosity", "queryPlanner")}).Err()
}
