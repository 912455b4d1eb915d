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

// wireVersion44 is the maxWireVersion of MongoDB 4.4, the first that computes
// the fields of a findAndModify's projection. Updates by pipeline and $$NOW are
// older (4.2). The Go driver needs 4.4 as well.
const wireVersion44 = 9

const genuine = "MongoDB 4.4 or later; other services do not keep what the locks rest on"

// check refuses what is not fit to keep locks, and notes whether the server
// stands alone.
func (l *Locker) check(ctx context.Context) error {
	hello, err := l.admin(ctx, "hello")
	if err != nil {
		return err
	}
	buildInfo, err := l.admin(ctx, "buildInfo")
	if err != nil {
		return err
	}
	if l.standalone, err = identify(hello, buildInfo); err != nil {
		return err
	}
	if err := l.checkCollection(ctx); err != nil {
		return err
	}
	return l.rehearse(ctx)
}

func (l *Locker) admin(ctx context.Context, command string) (bson.Raw, error) {
	return l.writes.Database().Client().Database("admin").RunCommand(ctx, is(command, 1),
		options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
}

// identify judges a server by its replies to hello and buildInfo.
func identify(hello, buildInfo bson.Raw) (standalone bool, err error) {
	if other := impostor(hello, buildInfo); other != "" {
		return false, driver.Invalid("server", other, genuine)
	}
	wire, _ := hello.Lookup("maxWireVersion").AsInt64OK()
	if wire < wireVersion44 {
		version, _ := buildInfo.Lookup("version").StringValueOK()
		return false, driver.Invalid("server", fmt.Sprintf("%q (wire version %d)", version, wire), genuine)
	}
	_, member := hello.Lookup("setName").StringValueOK()
	kind, _ := hello.Lookup("msg").StringValueOK()
	return !member && kind != "isdbgrid", nil
}

// impostor names the service that the replies are from if it is not MongoDB.
// The signs are those that MongoDB's and Microsoft's own tools go by.
func impostor(hello, buildInfo bson.Raw) string {
	hosts := []bson.RawValue{hello.Lookup("me"), hello.Lookup("primary")}
	if all, ok := hello.Lookup("hosts").ArrayOK(); ok {
		if values, err := all.Values(); err == nil {
			hosts = append(hosts, values...)
		}
	}
	for _, host := range hosts {
		if addr, ok := host.StringValueOK(); ok {
			if name := impostorHost(addr); name != "" {
				return name
			}
		}
	}
	switch {
	case has(buildInfo, "_t"):
		return "Azure Cosmos DB"
	case has(hello, "internal", "cosmos_versions"), has(hello, "internal", "documentdb_versions"):
		return "DocumentDB on PostgreSQL"
	case has(buildInfo, "ferretdb"), has(buildInfo, "ferretdbVersion"):
		return "FerretDB"
	default:
		return ""
	}
}

func has(raw bson.Raw, path ...string) bool {
	_, err := raw.LookupErr(path...)
	return err == nil
}

// impostorHost names the service that a host belongs to if it is not MongoDB.
func impostorHost(addr string) string {
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

// checkCollection refuses a collection in which two names could be one (under a
// collation, "a" and "A" may share an _id), or which removes locks that are held: a
// capped one drops its oldest documents to make room.
func (l *Locker) checkCollection(ctx context.Context) error {
	found, err := l.writes.Database().ListCollectionSpecifications(ctx, is("name", l.writes.Name()))
	if hasCode(err, codeUnauthorized) {
		return nil // nothing but the collection itself is granted: then it has to be trusted
	}
	if err != nil {
		return err
	}
	for _, spec := range found {
		if spec.Type != "" && spec.Type != "collection" {
			return driver.Invalid("collection "+l.namespace(), "a "+spec.Type, "an ordinary collection")
		}
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			return driver.Invalid("collection "+l.namespace(), "capped", "not capped: it would remove locks that are held")
		}
		if locale, ok := spec.Options.Lookup("collation", "locale").StringValueOK(); ok && locale != "simple" {
			return driver.Invalid("collection "+l.namespace(), "with collation "+locale, "without a collation: it would make one name of two")
		}
	}
	return nil
}

// rehearse sends the acquire command in a form that matches and inserts
// nothing: a server that does not understand it, or does not let this user do
// it, says so now.
func (l *Locker) rehearse(ctx context.Context) error {
	pipeline := acquirePipeline("", driver.Request{Name: "-", ID: driver.NewLeaseID("-"), TTL: time.Second})
	err := l.writes.FindOneAndUpdate(ctx, is(fieldName, bson.MinKey{}), pipeline,
		options.FindOneAndUpdate().SetProjection(facts)).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	return err
}
