package mongo

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// openForCheck makes a Locker that sends nothing yet: whatever is wrong is for its Checker to report.
func openForCheck(_ context.Context, rawURL string) (driver.Locker, error) {
	l, err := connect(rawURL, nil)
	if err != nil {
		return nil, err
	}
	l.forCheck = true
	return l, nil
}

// What [Locker.Check] examines.
const (
	subjectReachable  = "primary"
	subjectServer     = "server"
	subjectConnection = "connection"
	subjectAccess     = "access control"
	subjectCollection = "collection"
	subjectWrite      = "majority write"
	subjectIndex      = "TTL index"
	subjectHints      = "hints"
	subjectForeign    = "foreign documents"

	subjectFind        = "privilege find"
	subjectInsert      = "privilege insert"
	subjectUpdate      = "privilege update"
	subjectListIndexes = "privilege listIndexes"
	subjectCreateIndex = "privilege createIndex"
	subjectHinting     = "privileges of hints"
)

// checkup is one call of Check.
type checkup struct {
	driverutil.Report
	l *Locker

	hello      bson.Raw
	standalone bool
	router     bool   // the server is a mongos
	user       string // empty if the server knows no user of this connection
	userDB     string
	stopped    bool // no majority acknowledges a write
}

// Check implements [driver.Checker]. It reads, and sends an update that matches no document.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	c := &checkup{l: l, Report: report}
	return driverutil.CheckSteps(ctx, backend, func() bool { return l.closing.Err() != nil },
		c.server, c.connection, c.access, c.majorityWrite, c.collection, c.index, c.hints, c.foreign, c.members, c.configuration)
}

// RemoveProbe implements [driver.Checker]. The user needs the privilege remove.
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	o := op{verb: "remove", name: name, invalid: driver.ValidateName(name, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		// Promise 1: the record of a lock that is held is not removed.
		// Promise 3: the next token, which comes from the server's clock, must be greater.
		free := doc{field(fieldName, name), field(fieldVersion, schemaVersion), field(fieldToken, docOf("$type", "long")),
			field(fieldLeaseID, docOf("$exists", false)), field(fieldData, docOf("$exists", false)),
			field("$expr", docOf("$lt", list{"$" + fieldToken, docOf("$toLong", "$$NOW")}))}
		_, err := l.majority.DeleteOne(ctx, free)
		return err
	})
}

// run runs the commands of one step.
func (c *checkup) run(ctx context.Context, commands func(context.Context) error) error {
	return c.l.run(ctx, op{verb: "check"}, commands)
}

// failed reports that a step got no answer. A missing right leaves it unchecked.
func (c *checkup) failed(subject string, level driver.Level, err error, remedy string) {
	if level != driver.LevelWrong && hasCode(err, codeUnauthorized) {
		level = driver.LevelUnchecked
	}
	c.Report(driver.Finding{Subject: subject, Level: level, Detail: plain(err), Remedy: remedy})
}

var refusedCommand = regexp.MustCompile(`not authorized on \S+ to execute command \{ \w+`)

// plain is an error's text. That of a missing right is cut: the server quotes the whole command.
func plain(err error) string {
	text := driver.ErrorText(err)
	if refused := refusedCommand.FindString(text); refused != "" {
		return strings.Replace(refused, "command { ", "", 1)
	}
	return text
}

// command returns a command for mongosh, which also is a command of the server in JSON.
func command(database string, cmd doc) string {
	text, err := bson.MarshalExtJSON(cmd, false, false)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("db.getSiblingDB(%q).runCommand(%s)", database, text)
}

// server examines the answer of the primary, or of the router.
func (c *checkup) server(ctx context.Context) bool {
	var info bson.Raw
	var took time.Duration
	err := c.run(ctx, func(ctx context.Context) (err error) {
		if _, err = c.l.adminCommand(ctx, "hello"); err != nil { // makes the connection
			return err
		}
		begun := time.Now()
		if c.hello, err = c.l.adminCommand(ctx, "hello"); err != nil {
			return err
		}
		took = time.Since(begun)
		info, err = c.l.buildInfo(ctx)
		return err
	})
	if err != nil {
		remedy := "Check that the members run, that this machine reaches their ports (firewall, DNS, TLS), and the URL's hosts and replicaSet."
		if hasCode(err, codeAuthenticationFailed) {
			remedy = "Correct user, password and authSource in the URL; the user must exist in the database that authSource names."
		}
		c.failed(subjectReachable, driver.LevelWrong, err, remedy)
		return false
	}
	if c.notPrimary() {
		return false
	}
	c.OK(subjectReachable, "%s answered in %v", c.address(), roundLatency(took))
	version, known := info.Lookup("version").StringValueOK()
	if !known {
		version = "of an unknown version"
	}
	c.standalone, err = identify(c.hello, info)
	if c.standalone && c.l.forCheck { // nobody else uses it yet
		c.l.standalone, c.l.linearizable = true, c.l.majority
	}
	kind, _ := c.hello.Lookup("msg").StringValueOK()
	c.router = kind == "isdbgrid"
	set, _ := c.hello.Lookup("setName").StringValueOK()
	switch {
	case err != nil:
		c.failed(subjectServer, driver.LevelWrong, err, "Keep the locks on "+serverRule+".")
		return false
	case c.standalone:
		c.Report(driver.Finding{Subject: subjectServer, Level: driver.LevelDoubtful,
			Detail: "MongoDB " + version + ", a standalone server: no other server takes over",
			Remedy: "Make it a replica set: restart it with --replSet rs0, run the command on it in mongosh, and add replicaSet=rs0 to the URL. " +
				"With three members it survives the loss of one.",
			Command: command("admin", docOf("replSetInitiate", doc{}))})
	case c.router:
		c.OK(subjectServer, "MongoDB %s, a router of a sharded cluster: the routers' clocks judge expiry", version)
	default:
		c.OK(subjectServer, "MongoDB %s, replica set %s", version, set)
	}
	return true
}

// notPrimary reports a member that is not the primary. The client is bound to it then: otherwise it
// would have looked for the primary.
func (c *checkup) notPrimary() bool {
	set, member := c.hello.Lookup("setName").StringValueOK()
	primary, known := c.hello.Lookup("isWritablePrimary").BooleanOK()
	if !member || primary || !known {
		return false
	}
	kind := "a member that is neither primary nor secondary now"
	if secondary, _ := c.hello.Lookup("secondary").BooleanOK(); secondary {
		kind = "a secondary"
	}
	found := driver.Finding{Subject: subjectReachable, Level: driver.LevelWrong,
		Detail: fmt.Sprintf("%s answered, but it is %s, and directConnection=true in the URL binds the client to it: no lock can be acquired "+
			"or renewed there", c.address(), kind),
		Remedy: "Remove directConnection from the URL, name all members as hosts, and add replicaSet=" + set + "."}
	if host, ok := c.hello.Lookup("primary").StringValueOK(); ok {
		found.Detail += "; the primary is " + host
	}
	c.Report(found)
	return true
}

// address is the server's own name for itself.
func (c *checkup) address() string {
	if me, ok := c.hello.Lookup("me").StringValueOK(); ok {
		return me
	}
	return "the server"
}

func roundLatency(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// connection examines settings of the URL that keep connections for too long, or bind the client to one member.
func (c *checkup) connection(context.Context) bool {
	dial := c.l.dial
	if dial == nil {
		c.Report(driver.Finding{Subject: subjectConnection, Level: driver.LevelUnchecked,
			Detail: "that of the program's own client, whose settings cannot be read",
			Remedy: "Set its MaxConnIdleTime to " + driver.FormatDuration(maxIdle) + ", or make a client for the locks alone."})
		return true
	}
	idle := dial.MaxConnIdleTime != nil && (*dial.MaxConnIdleTime == 0 || *dial.MaxConnIdleTime > longestIdle)
	if idle {
		c.Report(driver.Finding{Subject: subjectConnection, Level: driver.LevelDoubtful,
			Detail: "maxIdleTimeMS keeps connections that a firewall may have forgotten; renewals that try them one after another can lose a lease",
			Remedy: "Remove maxIdleTimeMS from the URL: the default is " + driver.FormatDuration(maxIdle) + "."})
	}
	if c.standalone || c.router {
		return true
	}
	set, _ := c.hello.Lookup("setName").StringValueOK()
	if dial.Direct == nil || !*dial.Direct {
		if !idle {
			c.OK(subjectConnection, "the client follows the primary of the set")
		}
		return true
	}
	c.Report(driver.Finding{Subject: subjectConnection, Level: driver.LevelDoubtful,
		Detail: "directConnection=true binds the client to one member: when another becomes the primary, no lock can be acquired or renewed",
		Remedy: "Remove directConnection from the URL, name all members as hosts, and add replicaSet=" + set + "."})
	return true
}

// majorityWrite sends an acquire that matches nothing and waits for the majority.
func (c *checkup) majorityWrite(ctx context.Context) bool {
	begun := time.Now()
	err := c.run(ctx, c.l.dryRunAcquire)
	took := time.Since(begun)
	const slow = time.Second
	switch {
	case hasCode(err, codeUnauthorized):
		c.failed(subjectWrite, driver.LevelWrong, err, "Grant the privileges that are missing.")
	case err != nil:
		c.stopped = true
		c.failed(subjectWrite, driver.LevelWrong, err,
			"A majority of the members with data must run and replicate: start those that are down, see rs.status() in mongosh.")
	case took > slow:
		c.Report(driver.Finding{Subject: subjectWrite, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("a majority took %v to acknowledge a write", roundLatency(took)),
			Remedy: "Look for a slow disk, a slow network or lagging members: rs.printSecondaryReplicationInfo() in mongosh."})
	default:
		c.OK(subjectWrite, "a majority acknowledged a write in %v; every lock is written with write concern majority, whatever the default is",
			roundLatency(took))
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
		c.Report(driver.Finding{Subject: subjectIndex, Level: driver.LevelWrong,
			Detail: fmt.Sprintf("the index %s expires records by %s: it removes the records of locks that are held, and two holders "+
				"can overlap", wrong.Name, wrong.fields()),
			Remedy:  "Drop the index. In mongosh:",
			Command: c.l.dropIndex(wrong)})
		return true
	}
	database, locks := c.l.majority.Database().Name(), c.l.majority.Name()
	retention := retentionIndex(indexes)
	wanted := c.l.retentionSeconds()
	create := docOf("createIndexes", locks)
	create = append(create, field("indexes", list{doc{field("key", docOf(fieldExpiresAt, 1)), field("name", indexName),
		field("expireAfterSeconds", wanted)}}))
	remedy := "Grant createIndex, so that the next start of a program makes the index, or make it in mongosh:"
	if c.user == "" { // without access control nothing can be granted
		remedy = "The next start of a program makes the index. Or make it in mongosh:"
	}
	switch {
	case len(indexes) == 0: // a collection has the index on _id; c.access has asked for the privileges
		c.OK(subjectIndex, "there is no collection %s yet: the first program makes it, with the index", c.l.namespace())
	case retention == nil:
		c.Report(driver.Finding{Subject: subjectIndex, Level: driver.LevelDoubtful,
			Detail:  "there is no TTL index: the records of locks that nobody uses any more stay forever",
			Remedy:  remedy,
			Command: command(database, create)})
	case !retention.removes():
		c.Report(driver.Finding{Subject: subjectIndex, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("the index %s on %s has no expireAfterSeconds: the records of locks that nobody uses any more stay forever",
				retention.Name, fieldExpiresAt),
			Remedy:  "Drop the index; the next start of a program makes the right one. In mongosh:",
			Command: c.l.dropIndex(retention)})
	case retention.after() != c.l.config.retention:
		have := retention.after()
		c.Report(driver.Finding{Subject: subjectIndex, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("the index removes records %s after their expiry, and the URL wants %s: data and last holders are kept for "+
				"another time than expected",
				driver.FormatDuration(have), driver.FormatDuration(c.l.config.retention)),
			Remedy: fmt.Sprintf("Give all programs the URL parameter %s=%s, or change the index in mongosh:", paramRetention, urlDuration(have)),
			Command: command(database, doc{field("collMod", locks),
				field("index", doc{field("name", retention.Name), field("expireAfterSeconds", wanted)})})})
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
		c.Report(driver.Finding{Subject: subjectForeign, Level: driver.LevelDoubtful,
			Detail: "the collection has a document with " + other + ", which is no lock's: another program seems to write here",
			Remedy: "Give the locks a collection of their own (URL parameter " + paramCollection + "), or remove the other program's documents."})
	default:
		c.OK(subjectForeign, "every document has the _id of a lock")
	}
	return true
}
