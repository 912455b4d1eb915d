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
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/holdfast-go/holdfast/driver"
)

// wireVersion44 is the maxWireVersion of MongoDB 4.4, the first version that computes fields
// in a findAndModify's projection. Updates by pipeline and $$NOW are older (4.2). The Go
// driver requires 4.4, too.
const wireVersion44 = 9

const serverRule = "MongoDB 4.4 or later; compatible services lack guarantees that locks need"

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
	return l.majority.Database().Client().Database("admin").RunCommand(ctx, docOf(command, 1),
		options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
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
