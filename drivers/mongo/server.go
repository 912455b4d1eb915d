package mongo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// wireVersion44 is the maxWireVersion of MongoDB 4.4, the first version that computes fields
// in a findAndModify's projection. Updates by pipeline and $$NOW are older (4.2). The Go
// driver requires 4.4, too.
const wireVersion44 = 9

const serverRule = "MongoDB 4.4 or later; compatible services lack guarantees that locks need"

// begin checks the server and makes the Locker ready for use.
func (l *Locker) begin(ctx context.Context) error {
	if err := l.prepare(ctx); err != nil {
		l.cancel()
		l.leave()
		return err
	}
	l.loggedIn = true
	if l.config.wake == WakePoll {
		return nil
	}
	l.queue = newWatcher(l.hints.source(), l.majority.Database().Name()+"."+l.hints.coll.Name(), l.config.logger, waitqueue.Settings{})
	l.queue.connections = l.connections
	return nil
}

// prepare checks the server and creates the index.
func (l *Locker) prepare(ctx context.Context) error {
	if err := l.do(ctx, op{verb: "connect"}, l.checkServer); err != nil {
		return err
	}
	if l.standalone {
		// It has no majority to ask. Its own data are all there are.
		l.linearizable = l.majority
		l.warn(ctx, "this server is not a replica set: a crash may lose an acknowledged lock")
	}
	if l.forReading {
		return nil
	}
	return l.do(ctx, op{verb: "create the TTL index"}, l.ensureIndex)
}

// checkServer refuses a server that cannot keep the promises, and records whether it is a
// standalone.
func (l *Locker) checkServer(ctx context.Context) error {
	hello, err := l.adminCommand(ctx, "hello")
	if err != nil {
		return err
	}
	buildInfo, err := l.buildInfo(ctx)
	if err != nil {
		return err
	}
	if l.standalone, err = identify(hello, buildInfo); err != nil {
		return err
	}
	if err := l.checkDirect(hello); err != nil {
		return err
	}
	validator, err := l.checkCollection(ctx)
	if err != nil {
		return err
	}
	if l.forReading {
		return nil
	}
	l.warnOfValidator(ctx, validator)
	return l.dryRunAcquire(ctx)
}

// checkDirect refuses a direct connection to a member that is not the primary: each command would wait for its time limit.
func (l *Locker) checkDirect(hello bson.Raw) error {
	primary, _ := hello.Lookup("isWritablePrimary").BooleanOK()
	set, member := hello.Lookup("setName").StringValueOK()
	if primary || !member || l.dial == nil || l.dial.Direct == nil || !*l.dial.Direct {
		return nil
	}
	self, _ := hello.Lookup("me").StringValueOK()
	now := ""
	if other, ok := hello.Lookup("primary").StringValueOK(); ok {
		now = ", the primary is " + other
	}
	return fmt.Errorf("directConnection=true connects to %s, which is not the primary%s; give replicaSet=%s and no directConnection", self,
		now, set)
}

// buildInfo returns the server's reply, or nil with the strict Stable API: the command is not a part of that, which other
// services do not have.
func (l *Locker) buildInfo(ctx context.Context) (bson.Raw, error) {
	reply, err := l.adminCommand(ctx, "buildInfo")
	if hasCode(err, codeAPIStrict) {
		return nil, nil
	}
	return reply, err
}

func (l *Locker) adminCommand(ctx context.Context, command string) (bson.Raw, error) {
	return adminCommand(ctx, l.majority.Database().Client(), docOf(command, 1))
}

// identify evaluates a server's replies to hello and buildInfo.
func identify(hello, buildInfo bson.Raw) (standalone bool, err error) {
	if other := unsupportedService(hello, buildInfo); other != "" {
		return false, driver.Invalid("server", other, serverRule)
	}
	wire, _ := hello.Lookup("maxWireVersion").AsInt64OK()
	if wire < wireVersion44 {
		version, _ := buildInfo.Lookup("version").StringValueOK()
		return false, driver.Invalid("server", fmt.Sprintf("%q (wire version %d)", version, wire), serverRule)
	}
	_, member := hello.Lookup("setName").StringValueOK()
	kind, _ := hello.Lookup("msg").StringValueOK()
	return !member && kind != "isdbgrid", nil
}

// unsupportedService names the service that sent the replies if it is not MongoDB. It checks
// the same signs as MongoDB's and Microsoft's own tools.
func unsupportedService(hello, buildInfo bson.Raw) string {
	hosts := []bson.RawValue{hello.Lookup("me"), hello.Lookup("primary")}
	if all, ok := hello.Lookup("hosts").ArrayOK(); ok {
		if values, err := all.Values(); err == nil {
			hosts = append(hosts, values...)
		}
	}
	for _, host := range hosts {
		if addr, ok := host.StringValueOK(); ok {
			if name := unsupportedHost(addr); name != "" {
				return name
			}
		}
	}
	switch {
	case hasField(buildInfo, "_t"):
		return "Azure Cosmos DB"
	case hasField(hello, "internal", "cosmos_versions"), hasField(hello, "internal", "documentdb_versions"):
		return "DocumentDB on PostgreSQL"
	case hasField(buildInfo, "ferretdb"), hasField(buildInfo, "ferretdbVersion"):
		return "FerretDB"
	default:
		return ""
	}
}

// unsupportedHost names the service that a host belongs to if it is not MongoDB.
func unsupportedHost(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	for suffix, name := range map[string]string{
		".cosmos.azure.com":            "Azure Cosmos DB",
		".documents.azure.com":         "Azure Cosmos DB",
		".docdb.amazonaws.com":         "Amazon DocumentDB",
		".docdb-elastic.amazonaws.com": "Amazon DocumentDB",
		".firestore.goog":              "Firestore",
	} {
		if strings.HasSuffix(strings.ToLower(host), suffix) {
			return name
		}
	}
	return ""
}

// checkCollection refuses a collection in which locks are not safe. Under a collation two
// names can share an _id ("a" and "A"). A capped collection removes its oldest documents, also
// those of held locks. It returns the collection's validator, or nil.
func (l *Locker) checkCollection(ctx context.Context) (validator bson.Raw, err error) {
	found, err := l.majority.Database().ListCollectionSpecifications(ctx, docOf("name", l.majority.Name()))
	if hasCode(err, codeUnauthorized) {
		return nil, nil // the user may only use the collection itself, which cannot be checked then
	}
	if err != nil {
		return nil, err
	}
	for _, spec := range found {
		if spec.Type != "" && spec.Type != "collection" {
			return nil, driver.Invalid("collection "+l.namespace(), "a "+spec.Type, "an ordinary collection")
		}
		// Promise 1: the record of a held lock must not disappear.
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			return nil, driver.Invalid("collection "+l.namespace(), "capped", "not capped: a capped collection would remove locks that are held")
		}
		if locale, ok := spec.Options.Lookup("collation", "locale").StringValueOK(); ok && locale != "simple" {
			return nil, driver.Invalid("collection "+l.namespace(), "with collation "+locale,
				"without a collation: two names could compare as equal")
		}
		validator = validatorOf(spec.Options)
	}
	return validator, nil
}

// dryRunAcquire sends the acquire command in a form that matches and inserts nothing. A server
// that does not understand it, or a user who lacks the privilege, fails here and not at the
// first acquire.
func (l *Locker) dryRunAcquire(ctx context.Context) error {
	pipeline := acquirePipeline(asker{}, driver.Request{Name: "-", ID: driver.NewLeaseID("-"), TTL: time.Second}, l.config.history)
	err := l.majority.FindOneAndUpdate(ctx, docOf(fieldName, bson.MinKey{}), pipeline,
		options.FindOneAndUpdate().SetProjection(withoutData)).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	return err
}

// validatorOf returns the validator by which the server refuses documents of a collection with these options, or nil.
func validatorOf(options bson.Raw) bson.Raw {
	validator, _ := options.Lookup("validator").DocumentOK()
	level, _ := options.Lookup("validationLevel").StringValueOK()
	action, _ := options.Lookup("validationAction").StringValueOK()
	if elements, err := validator.Elements(); err != nil || len(elements) == 0 || level == "off" || action == "warn" {
		return nil
	}
	return validator
}

// validatorRefuses reports whether a validator refuses the record of a grant, one like those of most programs. The server makes
// that record, as for an acquire, and matches it, but stores nothing. A validator can accept the records of other locks only.
func (l *Locker) validatorRefuses(ctx context.Context, validator bson.Raw) (bool, error) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		req := driver.Request{Name: "test", ID: driver.NewLeaseID("-"), Owner: "host/1", TTL: time.Second, Mode: mode}
		pipeline := list{docOf("$collStats", docOf("count", doc{})), docOf("$limit", 1), // gives one document
			docOf("$replaceWith", docOf(fieldName, req.Name))}
		pipeline = append(pipeline, acquirePipeline(asker{id: l.id}, req, l.config.history)...)
		cursor, err := l.majority.Aggregate(ctx, append(pipeline, docOf("$match", validator)))
		if err != nil {
			return false, err
		}
		accepted := cursor.Next(ctx)
		if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
			return false, err
		}
		if !accepted {
			return true, nil
		}
	}
	return false, nil
}

// warnOfValidator logs that a validator may refuse the records of locks. Only an acquire that it has refused is certain.
func (l *Locker) warnOfValidator(ctx context.Context, validator bson.Raw) {
	if validator == nil {
		return
	}
	refuses, err := l.validatorRefuses(ctx, validator)
	switch {
	case err != nil:
		l.warn(ctx, "the collection has a validator, and it is unknown whether that accepts the records of locks", "error", err)
	case refuses:
		l.warn(ctx, "the collection has a validator that refuses the record of a test lock: perhaps no lock can be acquired",
			"remedy", dropValidator(l.namespace()))
	}
}
