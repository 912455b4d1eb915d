package mongo

import (
	"context"
	"fmt"
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// hints examines the collections by which a release wakes waiters, and follows one. It makes none.
func (c *checkup) hints(ctx context.Context) bool {
	if c.l.config.wake != WakeHints {
		c.OK(subjectHints, "not used: the URL has wake=%s", string(c.l.config.wake))
		return true
	}
	doubtful := func(detail, remedy, command string) bool {
		c.Report(driver.Finding{Subject: subjectHints, Level: driver.LevelDoubtful, Detail: detail, Remedy: remedy, Command: command})
		return true
	}
	if length := len(c.l.namespace()) + len(hintsSuffix+"0"); length > maxNamespace {
		return doubtful(fmt.Sprintf("the name %s is too long: with %s0 at its end it has %d bytes, and MongoDB allows %d, so there can be no "+
			"hints, and waiters poll", driver.Quote(c.l.namespace()), hintsSuffix, length, maxNamespace),
			"Name a collection with a shorter name in the URL parameter "+paramCollection+", in all programs at the same time.", "")
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
		return doubtful(fmt.Sprintf("the collection %s is not capped, so no process can follow it: its waiters poll", spec.Name),
			"Drop it: the next waiter makes it anew. If it has data of another program, move them first. In mongosh:",
			command(database.Name(), docOf("drop", spec.Name)))
	}
	switch err := c.run(ctx, func(ctx context.Context) error { return c.follow(ctx, found) }); {
	case hasCode(err, codeNoQueryPlan):
		return doubtful("the server's parameter notablescan forbids reading a collection without an index, so no process can follow hints: "+
			"waiters poll", "Remove notablescan from the configuration of every member, and turn it off on each. In mongosh:",
			command("admin", doc{field("setParameter", 1), field("notablescan", false)}))
	case err != nil:
		c.failed(subjectHints, driver.LevelDoubtful, err, "Waiters poll until this client can follow a capped collection.")
	case len(found) == 0 && !exists:
		c.Report(driver.Finding{Subject: subjectHints, Level: driver.LevelUnchecked,
			Detail: "not tried: there is neither a collection of locks nor one of hints yet"})
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
