package doctor_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// Each misconfiguration of a replica set is found, and its own remedy helps.
func TestMongoDB(t *testing.T) {
	serverprocess.Long(t, "reconfigures real servers")
	s := startMongoSet(t)
	healthy := s.url("locker", locks)
	// A program has used the collection before, so its TTL index exists.
	l, err := driver.Open(bounded(t), healthy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })

	t.Run("healthy", func(t *testing.T) {
		before := s.state(t)
		wantHealthy(t, examine(t, healthy))
		if after := s.state(t); after != before {
			t.Errorf("the check has changed\n%s\nto\n%s", before, after)
		}
	})
	t.Run("unused collection", func(t *testing.T) {
		wantHealthy(t, examine(t, s.url("locker", "unused")), "hints") // the first program makes both collections
	})
	for i, c := range []struct{ action, subject string }{
		{"find", "privilege find"}, {"insert", "privilege insert"}, {"update", "privilege update"},
		{"listIndexes", "privilege listIndexes"}, {"createIndex", "privilege createIndex"},
		{"createCollection", "privileges of hints"},
	} {
		t.Run("without "+c.action, func(t *testing.T) {
			actions := bson.A{"collStats"}
			for _, a := range []string{"find", "insert", "update", "remove", "listIndexes", "createIndex", "createCollection"} {
				if a != c.action {
					actions = append(actions, a)
				}
			}
			user := fmt.Sprintf("user%d", i)
			s.run("admin", bson.D{{Key: "createRole", Value: user}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
				{Key: "resource", Value: bson.D{{Key: "db", Value: database}, {Key: "collection", Value: ""}}}, {Key: "actions", Value: actions}}}}})
			s.addUser(user, bson.A{user, "clusterMonitor"})
			level := driver.LevelDoubtful
			if i < 3 {
				level = driver.LevelWrong
			}
			f := wantFound(t, examine(t, s.url(user, locks)), c.subject, level, "readWrite")
			if !strings.Contains(f.Detail, "lacks "+c.action) {
				t.Errorf("the finding does not name %s: %s", c.action, f.Detail)
			}
			s.apply(f)
			wantHealthy(t, examine(t, s.url(user, locks)))
		})
	}
	t.Run("without a user", func(t *testing.T) {
		wantFound(t, examine(t, s.url("", locks)), "access control", driver.LevelWrong, "user and password")
		wantCured(t, healthy, "access control")
	})
	t.Run("wrong password", func(t *testing.T) {
		wrong := strings.Replace(healthy, "locker-password", "s3cr3t", 1)
		wantFound(t, examine(t, wrong), "primary", driver.LevelWrong, "Correct user, password")
		wantCured(t, healthy, "primary")
	})
	t.Run("direct connection", func(t *testing.T) {
		primary, err := s.Primary(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		direct := strings.Replace(healthy, strings.Join(s.Hosts(), ","), s.Hosts()[primary], 1)
		direct = strings.Replace(direct, "replicaSet=rs", "directConnection=true", 1)
		f := wantFound(t, examine(t, direct), "connection", driver.LevelDoubtful, "Remove directConnection")
		if !strings.Contains(f.Remedy, "replicaSet=rs") {
			t.Errorf("the remedy does not name the set: %s", f.Remedy)
		}
		wantCured(t, healthy, "connection")
		// A secondary answers, too, and refuses every write.
		secondary := s.Hosts()[(primary+1)%len(s.Hosts())]
		r := examine(t, strings.Replace(direct, s.Hosts()[primary], secondary, 1))
		f = wantFound(t, r, "primary", driver.LevelWrong, "Remove directConnection")
		for _, want := range []string{secondary + " answered, but it is a secondary", "the primary is " + s.Hosts()[primary]} {
			if !strings.Contains(f.Detail, want) {
				t.Errorf("the finding does not say %q: %s", want, f.Detail)
			}
		}
		wantCured(t, healthy, "primary")
	})
	t.Run("idle connections are kept", func(t *testing.T) {
		wantFound(t, examine(t, healthy+"&maxIdleTimeMS=0"), "connection", driver.LevelDoubtful, "maxIdleTimeMS")
		wantCured(t, healthy, "connection")
	})
	t.Run("another retention", func(t *testing.T) {
		s.apply(wantFound(t, examine(t, healthy+"&retention=48h"), "TTL index", driver.LevelDoubtful, `"expireAfterSeconds":172800`))
		wantHealthy(t, examine(t, healthy+"&retention=48h"))
		wantFound(t, examine(t, healthy), "TTL index", driver.LevelDoubtful, "retention=48h, or")
		s.apply(wantFound(t, examine(t, healthy), "TTL index", driver.LevelDoubtful, `"expireAfterSeconds":86400`))
		wantHealthy(t, examine(t, healthy))
	})
	t.Run("TTL index on another field", func(t *testing.T) {
		name := "renewed"
		_, err := s.collection(name).Indexes().CreateOne(bounded(t), mongo.IndexModel{Keys: bson.D{{Key: "ts", Value: 1}},
			Options: options.Index().SetExpireAfterSeconds(60)})
		if err != nil {
			t.Fatal(err)
		}
		s.apply(wantFound(t, examine(t, s.url("locker", name)), "TTL index", driver.LevelWrong, `"dropIndexes"`))
		s.apply(wantFound(t, examine(t, s.url("locker", name)), "TTL index", driver.LevelDoubtful, `"createIndexes"`))
		wantHealthy(t, examine(t, s.url("locker", name)))
	})
	t.Run("hints in an ordinary collection", func(t *testing.T) {
		s.insert(locks+".hints.3", bson.D{{Key: "a", Value: 1}})
		s.apply(wantFound(t, examine(t, healthy), "hints", driver.LevelDoubtful, `"drop":"locks.hints.3"`))
		wantHealthy(t, examine(t, healthy))
	})
	t.Run("foreign documents", func(t *testing.T) {
		s.insert("shared", bson.D{{Key: "_id", Value: "n"}, {Key: "v", Value: 7}})
		s.insert("shared", bson.D{{Key: "_id", Value: bson.NewObjectID()}})
		r := examine(t, s.url("locker", "shared"))
		wantFound(t, r, "foreign documents", driver.LevelDoubtful, "remove the other program's documents")
		f := wantFound(t, r, "records", driver.LevelWrong, "delete them")
		if !strings.Contains(f.Detail, `"n"`) {
			t.Errorf("the damaged record is not named: %s", f.Detail)
		}
		s.remove("shared")
		wantCured(t, s.url("locker", "shared"), "foreign documents")
		wantCured(t, s.url("locker", "shared"), "records")
	})
	t.Run("capped collection", func(t *testing.T) {
		s.run(database, bson.D{{Key: "create", Value: "capped"}, {Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}})
		wantFound(t, examine(t, s.url("locker", "capped")), "collection", driver.LevelWrong, "another collection in the URL parameter collection")
		wantCured(t, healthy, "collection")
	})
	t.Run("collation", func(t *testing.T) {
		s.run(database, bson.D{{Key: "create", Value: "collated"}, {Key: "collation", Value: bson.D{{Key: "locale", Value: "en"}}}})
		wantFound(t, examine(t, s.url("locker", "collated")), "collection", driver.LevelWrong, "another collection")
		wantCured(t, healthy, "collection")
	})
	t.Run("majority writes not in the journal", func(t *testing.T) {
		s.reconfigure(func(c bson.M) { c["writeConcernMajorityJournalDefault"] = false })
		wantFound(t, examine(t, healthy), "journal of the majority", driver.LevelDoubtful, "c.writeConcernMajorityJournalDefault = true")
		s.reconfigure(func(c bson.M) { c["writeConcernMajorityJournalDefault"] = true })
		wantCured(t, healthy, "journal of the majority")
	})
	t.Run("slow elections", func(t *testing.T) {
		s.reconfigure(func(c bson.M) { setting(c, "electionTimeoutMillis", 40000) })
		wantFound(t, examine(t, healthy), "election timeout", driver.LevelDoubtful, "c.settings.electionTimeoutMillis = 10000")
		s.reconfigure(func(c bson.M) { setting(c, "electionTimeoutMillis", 10000) })
		wantCured(t, healthy, "election timeout")
	})
	t.Run("lease that is not renewed", func(t *testing.T) {
		const name = "nightly"
		lease, err := l.TryAcquire(bounded(t), driver.Request{Name: name, ID: driver.NewLeaseID("2a2b9f2e-31a1-4b52-9b5a-5f0d7a6b8c9d"),
			Owner: "host/1", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		soon := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 290_000}}}}}}}}
		if _, err := s.collection(locks).UpdateOne(bounded(t), bson.D{{Key: "_id", Value: name}}, soon); err != nil {
			t.Fatal(err)
		}
		f := wantFound(t, examine(t, healthy), "leases", driver.LevelDoubtful, "owners run and reach the backend")
		if !strings.Contains(f.Detail, `"nightly" of "host/1" has 4m`) { // 4m50s, less the time since
			t.Errorf("the lease is not described: %s", f.Detail)
		}
		if _, err := l.Renew(bounded(t), lease); err != nil { // its owner runs again
			t.Fatal(err)
		}
		wantCured(t, healthy, "leases")
		if err := l.Release(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("member down", func(t *testing.T) {
		down := s.secondary(t)
		if err := s.Kill(down); err != nil {
			t.Fatal(err)
		}
		f := wantFound(t, examine(t, healthy), "members", driver.LevelDoubtful, "Start them")
		if !strings.Contains(f.Detail, s.Hosts()[down]) {
			t.Errorf("the member is not named: %s", f.Detail)
		}
		if err := s.Restart(bounded(t), down); err != nil {
			t.Fatal(err)
		}
		wantCured(t, healthy, "members")
	})
	t.Run("skewed member", func(t *testing.T) {
		skewed := s.secondary(t)
		for _, c := range []struct {
			offset time.Duration
			level  driver.Level
		}{{3 * time.Second, driver.LevelDoubtful}, {time.Minute, driver.LevelWrong}} {
			s.setClock(skewed, c.offset)
			f := wantFound(t, examine(t, healthy), "clocks of the members", c.level, "Synchronize the clock of "+s.Hosts()[skewed])
			if !strings.Contains(f.Detail, "ahead of") {
				t.Errorf("by %v: %s", c.offset, f.Detail)
			}
		}
		// A mongod whose clock steps back while it runs waits for that long.
		if err := s.Kill(skewed); err != nil {
			t.Fatal(err)
		}
		s.setClock(skewed, 0)
		if err := s.Restart(bounded(t), skewed); err != nil {
			t.Fatal(err)
		}
		wantCured(t, healthy, "clocks of the members")
	})
}

// secondary is a member that is not the primary.
func (s *mongoSet) secondary(t *testing.T) int {
	t.Helper()
	primary, err := s.Primary(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return (primary + 1) % 3
}

// state is all that a check could change: the records, collections and indexes.
func (s *mongoSet) state(t *testing.T) string {
	t.Helper()
	ctx := bounded(t)
	db := s.admin.Database(database)
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, name := range names {
		cursor, err := db.Collection(name).Find(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var all []bson.Raw
		if err := cursor.All(ctx, &all); err != nil {
			t.Fatal(err)
		}
		specs, err := db.Collection(name).Indexes().ListSpecifications(ctx)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, name, all, len(specs))
	}
	return out.String()
}

// A standalone server becomes a replica set as its finding says.
func TestMongoDBStandalone(t *testing.T) {
	serverprocess.Long(t, "reconfigures real servers")
	mongod, err := testservers.Mongod.Path(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var extra []string
	server := serverprocess.StartFor(t, serverprocess.Config{Name: "mongod", Program: mongod,
		Args: func(port, data string) []string {
			return append([]string{"--bind_ip", serverprocess.Host, "--port", port, "--dbpath", data, "--quiet"}, extra...)
		}})
	url := "mongodb://" + server.Addr() + "/app?collection=locks"
	r := examine(t, url)
	f := wantFound(t, r, "server", driver.LevelDoubtful, "--replSet rs0")
	wantFound(t, r, "fail-over", driver.LevelDoubtful, "")
	wantFound(t, r, "access control", driver.LevelDoubtful, "security.authorization")
	wantFound(t, r, "removal of the probe", driver.LevelOK, "")

	extra = []string{"--replSet", "rs0"}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	client := mongotest.Connect(t, "mongodb://"+server.Addr()+"/?directConnection=true")
	db, cmd := parseCommand(t, f)
	if err := client.Database(db).RunCommand(bounded(t), cmd).Err(); err != nil {
		t.Fatal(err)
	}
	url += "&replicaSet=rs0" // as the remedy says
	r = examine(t, url)
	wantFound(t, r, "server", driver.LevelOK, "")
	wantFound(t, r, "fail-over", driver.LevelOK, "")
	wantFound(t, r, "members", driver.LevelDoubtful, "rs.add")
}

// A server that nobody reaches is a finding, too.
func TestMongoDBUnreachable(t *testing.T) {
	serverprocess.Long(t, "reconfigures real servers")
	// On a busy machine a short limit can be over before the connection was refused.
	for _, limit := range []string{"300ms", "2s", "10s"} {
		r := examine(t, "mongodb://locker:locker-password@127.0.0.1:1/app?commandTimeout="+limit)
		f := wantFound(t, r, "primary", driver.LevelWrong, "firewall")
		wantFound(t, r, "probe lock", driver.LevelUnchecked, "")
		if strings.Contains(f.Detail, "refused the connection") {
			return
		}
		t.Logf("within %s the cause is not named: %s", limit, f.Detail)
	}
	t.Error("the cause is not named")
}
