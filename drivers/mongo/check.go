package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

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
	switch product := "MongoDB " + version; {
	case err != nil:
		c.failed(subjectServer, driver.LevelWrong, err, "Keep the locks on "+serverRule+".")
		return false
	case c.standalone:
		const alone = ", a standalone server"
		c.Of(product + alone)(driver.Finding{Subject: subjectServer, Level: driver.LevelDoubtful,
			Detail: product + alone + ": no other server takes over",
			Remedy: "Make it a replica set: restart it with --replSet rs0, run the command on it in mongosh, and add replicaSet=rs0 to the URL. " +
				"With three members it survives the loss of one.", Command: mongosh("admin", docOf("replSetInitiate", doc{}))})
	case c.router:
		const router = ", a router of a sharded cluster"
		c.Of(product+router).OK(subjectServer, "%s%s: the routers' clocks judge expiry", product, router)
	default:
		c.Of(product).OK(subjectServer, "%s, replica set %s", product, set)
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

// connection examines settings of the URL that keep connections for too long, or bind the client to one member.
func (c *checkup) connection(context.Context) bool {
	dial := c.l.dial
	if dial == nil {
		c.Unchecked(subjectConnection, "Set its MaxConnIdleTime to "+driver.FormatDuration(maxIdle)+", or make a client for the locks alone.",
			"that of the program's own client, whose settings cannot be read")
		return true
	}
	idle := dial.MaxConnIdleTime != nil && (*dial.MaxConnIdleTime == 0 || *dial.MaxConnIdleTime > longestIdle)
	if idle {
		c.Doubtful(subjectConnection, "Remove maxIdleTimeMS from the URL: the default is "+driver.FormatDuration(maxIdle)+".",
			"maxIdleTimeMS keeps connections that a firewall may have forgotten; renewals that try them one after another can lose a lease")
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
	c.Doubtful(subjectConnection, "Remove directConnection from the URL, name all members as hosts, and add replicaSet="+set+".",
		"directConnection=true binds the client to one member: when another becomes the primary, no lock can be acquired or renewed")
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
		c.Doubtful(subjectWrite, "Look for a slow disk, a slow network or lagging members: rs.printSecondaryReplicationInfo() in mongosh.",
			"a majority took %v to acknowledge a write", roundLatency(took))
	default:
		c.OK(subjectWrite, "a majority acknowledged a write in %v; every lock is written with write concern majority, whatever the default is",
			roundLatency(took))
	}
	return true
}
