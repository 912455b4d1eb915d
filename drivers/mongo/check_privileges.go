package mongo

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// access examines who the user is and what the user may do.
func (c *checkup) access(ctx context.Context) bool {
	var status bson.Raw
	err := c.run(ctx, func(ctx context.Context) (err error) {
		status, err = adminCommand(ctx, c.l.majority.Database().Client(), doc{field("connectionStatus", 1), field("showPrivileges", true)})
		return err
	})
	if err != nil {
		c.failed(subjectAccess, driver.LevelUnchecked, err, "")
		return true
	}
	c.user, _ = status.Lookup("authInfo", "authenticatedUsers", "0", "user").StringValueOK()
	c.userDB, _ = status.Lookup("authInfo", "authenticatedUsers", "0", "db").StringValueOK()
	if c.user == "" {
		return c.anonymous(ctx)
	}
	c.OK(subjectAccess, "the connection is that of the user %s of the database %s", driver.Quote(c.user), c.userDB)
	c.privileges(status)
	return true
}

// anonymous examines a server that was sent no user.
func (c *checkup) anonymous(ctx context.Context) bool {
	err := c.run(ctx, c.l.dryRunAcquire)
	if hasCode(err, codeUnauthorized) {
		c.Wrong(subjectAccess, "Put user and password into the URL, in HOLDFAST_BACKEND and not on a command line: "+
			"mongodb://USER:PASSWORD@HOSTS/DATABASE?authSource=admin.", "", "the server demands a user, and the URL names none")
		return false
	}
	c.Doubtful(subjectAccess, "Start the members with security.keyFile and security.authorization, and create a user with the role readWrite "+
		"on the database of the locks.", "the server has no access control: whoever reaches its port can take and release every lock")
	return true
}

// privilege is a right of a user on a collection.
type privilege struct {
	subject    string
	collection string
	actions    []string
	level      driver.Level // if it is missing
	without    string       // what happens without it
}

// privileges compares what the server says of the user with what the driver needs.
func (c *checkup) privileges(status bson.Raw) {
	database, locks := c.l.majority.Database().Name(), c.l.majority.Name()
	const retention = "abandoned records are not removed unless somebody else makes the TTL index"
	for _, p := range []privilege{
		{subjectFind, locks, []string{"find"}, driver.LevelWrong, "no lock can be acquired or read"},
		{subjectInsert, locks, []string{"insert"}, driver.LevelWrong, "a lock's first acquire fails"},
		{subjectUpdate, locks, []string{"update"}, driver.LevelWrong, "no lock can be acquired or renewed"},
		{subjectListIndexes, locks, []string{"listIndexes"}, driver.LevelDoubtful, "the TTL index is not checked"},
		{subjectCreateIndex, locks, []string{"createIndex"}, driver.LevelDoubtful, retention},
		{subjectHinting, locks + hintsSuffix + "0", []string{"createCollection", "find", "insert"}, driver.LevelDoubtful,
			"a release wakes no waiter of another process; waiters poll"},
	} {
		var missing []string
		for _, action := range p.actions {
			if !allows(status, database, p.collection, action) {
				missing = append(missing, action)
			}
		}
		if len(missing) == 0 {
			c.OK(p.subject, "granted on %s", p.collection)
			continue
		}
		c.mend(p.subject, p.level, fmt.Sprintf("the user lacks %s on %s.%s: %s", strings.Join(missing, ", "), database, p.collection, p.without),
			"Grant the user the role readWrite on the database. In mongosh, as an administrator:", mongosh(c.userDB,
				doc{field("grantRolesToUser", c.user), field("roles", list{doc{field("role", "readWrite"), field("db", database)}})}))
	}
}

// allows reports whether the answer to connectionStatus has an action on a collection.
func allows(status bson.Raw, database, collection, action string) bool {
	granted, _ := status.Lookup("authInfo", "authenticatedUserPrivileges").ArrayOK()
	values, err := granted.Values()
	if err != nil {
		return false
	}
	for _, value := range values {
		one, ok := value.DocumentOK()
		if !ok || !covers(one, database, collection) {
			continue
		}
		actions, _ := one.Lookup("actions").ArrayOK()
		names, err := actions.Values()
		if err != nil {
			continue
		}
		for _, name := range names {
			if text, _ := name.StringValueOK(); text == action || text == "anyAction" {
				return true
			}
		}
	}
	return false
}

// covers reports whether a privilege is on this collection. An empty text stands for all names.
func covers(privilege bson.Raw, database, collection string) bool {
	if all, _ := privilege.Lookup("resource", "anyResource").BooleanOK(); all {
		return true
	}
	db, ofCollections := privilege.Lookup("resource", "db").StringValueOK()
	coll, _ := privilege.Lookup("resource", "collection").StringValueOK()
	return ofCollections && (db == "" || db == database) && (coll == "" || coll == collection)
}
