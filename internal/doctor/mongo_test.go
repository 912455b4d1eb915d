package doctor_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/internal/serverprocess"
	"github.com/holdfast-go/holdfast/internal/testservers"
)

const (
	database = "app"
	locks    = "locks"
)

// movableClock compiles the library by which a process has another clock.
func movableClock(t *testing.T) (library string) {
	t.Helper()
	library = filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O2", "-o", library, "../../integration/env/clock/clock.c", "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v %s", err, out)
	}
	return library
}

// mongoSet is a replica set with access control, whose members' clocks can be moved.
type mongoSet struct {
	*mongotest.ReplicaSet
	t      *testing.T
	admin  *mongo.Client
	clocks []string
}

func startMongoSet(t *testing.T) *mongoSet {
	t.Helper()
	library := movableClock(t)
	s := &mongoSet{t: t}
	for range 3 {
		clock := filepath.Join(t.TempDir(), "offset")
		s.clocks = append(s.clocks, clock)
	}
	for i := range s.clocks {
		s.setClock(i, 0)
	}
	s.ReplicaSet = mongotest.StartReplicaSet(t, mongotest.Options{Auth: true, ElectionTimeout: 10 * time.Second, Env: func(member int) []string {
		return []string{"LD_PRELOAD=" + library, "HOLDFAST_CLOCK=" + s.clocks[member]}
	}})
	s.admin = mongotest.Connect(t, s.URI())
	s.addUser("locker", bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: database}}, "clusterMonitor"})
	return s
}

// setClock moves a member's clock. The member has mapped the file, so it is written in place.
func (s *mongoSet) setClock(member int, offset time.Duration) {
	s.t.Helper()
	f, err := os.OpenFile(s.clocks[member], os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset.Nanoseconds())))
	if err := errors.Join(err, f.Close()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *mongoSet) run(db string, cmd any) {
	s.t.Helper()
	if err := s.admin.Database(db).RunCommand(bounded(s.t), cmd).Err(); err != nil {
		s.t.Fatalf("%v: %v", cmd, err)
	}
}

func (s *mongoSet) addUser(name string, roles bson.A) {
	s.t.Helper()
	s.run("admin", bson.D{{Key: "createUser", Value: name}, {Key: "pwd", Value: name + "-password"}, {Key: "roles", Value: roles}})
}

// url is that of a user; without a user it has none.
func (s *mongoSet) url(user, collection string) string {
	u := s.URI()
	with := user + ":" + user + "-password@"
	if user == "" {
		with = ""
	}
	u = strings.Replace(u, mongotest.AdminUser+":"+mongotest.AdminPassword+"@", with, 1)
	u = strings.Replace(u, "/?", "/"+database+"?", 1) + "&collection=" + collection
	if user != "" {
		u += "&authSource=admin"
	}
	return u
}

var mongoshCommand = regexp.MustCompile(`^db\.getSiblingDB\("([^"]*)"\)\.runCommand\((.*)\)$`)

// parseCommand returns the command that a finding tells to run in mongosh.
func parseCommand(t *testing.T, f driver.Finding) (db string, cmd bson.D) {
	t.Helper()
	m := mongoshCommand.FindStringSubmatch(f.Command)
	if m == nil {
		t.Fatalf("%s has no command: %q", f.Subject, f.Command)
	}
	if err := bson.UnmarshalExtJSON([]byte(m[2]), false, &cmd); err != nil {
		t.Fatalf("%s: %v", f.Command, err)
	}
	return m[1], cmd
}

// apply runs the command of a finding as the administrator.
func (s *mongoSet) apply(f driver.Finding) {
	s.t.Helper()
	db, cmd := parseCommand(s.t, f)
	s.run(db, cmd)
}

func (s *mongoSet) collection(name string) *mongo.Collection {
	return s.admin.Database(database).Collection(name)
}

// reconfigure does what c = rs.conf(); change(c); rs.reconfig(c) does in mongosh.
func (s *mongoSet) reconfigure(change func(config bson.M)) {
	s.t.Helper()
	var reply struct{ Config bson.M }
	if err := s.admin.Database("admin").RunCommand(bounded(s.t), bson.D{{Key: "replSetGetConfig", Value: 1}}).Decode(&reply); err != nil {
		s.t.Fatal(err)
	}
	change(reply.Config)
	version, _ := reply.Config["version"].(int32)
	reply.Config["version"] = version + 1
	s.run("admin", bson.D{{Key: "replSetReconfig", Value: reply.Config}})
	s.settle()
}

// settle waits until a majority acknowledges writes again. After a change of the configuration, or of
// a member's clock, that can take longer than a Locker's time limit.
func (s *mongoSet) settle() {
	s.t.Helper()
	s.insert("settled", bson.D{})
}

func setting(config bson.M, key string, value any) {
	all, _ := config["settings"].(bson.D)
	for i := range all {
		if all[i].Key == key {
			all[i].Value = value
			return
		}
	}
}

func (s *mongoSet) insert(collection string, document any) {
	s.t.Helper()
	if _, err := s.collection(collection).InsertOne(bounded(s.t), document); err != nil {
		s.t.Fatal(err)
	}
}

func (s *mongoSet) remove(collection string) {
	s.t.Helper()
	if _, err := s.collection(collection).DeleteMany(bounded(s.t), bson.D{}); err != nil {
		s.t.Fatal(err)
	}
}

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
		r := examine(t, s.url("locker", "unused"))
		s.apply(wantFound(t, r, "TTL index", driver.LevelDoubtful, `"createIndexes"`))
		wantHealthy(t, examine(t, s.url("locker", "unused")))
	})
	for i, c := range []struct{ action, subject string }{
		{"find", "privilege find"}, {"insert", "privilege insert"}, {"update", "privilege update"},
		{"listIndexes", "privilege listIndexes"}, {"createIndex", "privilege createIndex"}, {"changeStream", "privilege changeStream"},
		{"createCollection", "privileges of hints"},
	} {
		t.Run("without "+c.action, func(t *testing.T) {
			actions := bson.A{"collStats"}
			for _, a := range []string{"find", "insert", "update", "remove", "listIndexes", "createIndex", "createCollection", "changeStream"} {
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
		_, err := s.collection(name).Indexes().CreateOne(bounded(t), mongo.IndexModel{Keys: bson.D{{Key: "ts", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(60)})
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
		lease, err := l.TryAcquire(bounded(t), driver.Request{Name: name, ID: driver.NewLeaseID("2a2b9f2e-31a1-4b52-9b5a-5f0d7a6b8c9d"), Owner: "host/1", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		soon := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 290_000}}}}}}}}
		if _, err := s.collection(locks).UpdateOne(bounded(t), bson.D{{Key: "_id", Value: name}}, soon); err != nil {
			t.Fatal(err)
		}
		f := wantFound(t, examine(t, healthy), "leases", driver.LevelDoubtful, "owners run and reach the backend")
		if !strings.Contains(f.Detail, `"nightly" of "host/1" has 4m`) {
			t.Errorf("the lease is not described: %s", f.Detail)
		}
		if err := l.Renew(bounded(t), lease); err != nil { // its owner runs again
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
	mongod, err := testservers.Mongod(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var extra []string
	servers, err := serverprocess.Start(bounded(t), t.TempDir(), serverprocess.Config{Name: "mongod", Program: mongod, Args: func(port, data string) []string {
		return append([]string{"--bind_ip", serverprocess.Host, "--port", port, "--dbpath", data, "--quiet"}, extra...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := serverprocess.Remove(servers); err != nil {
			t.Error(err)
		}
	})
	url := "mongodb://" + servers[0].Addr() + "/app?collection=locks"
	r := examine(t, url)
	f := wantFound(t, r, "server", driver.LevelDoubtful, "--replSet rs0")
	wantFound(t, r, "change stream", driver.LevelDoubtful, "replica set")
	wantFound(t, r, "access control", driver.LevelDoubtful, "security.authorization")
	wantFound(t, r, "removal of the probe", driver.LevelOK, "")

	extra = []string{"--replSet", "rs0"}
	if err := servers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if err := servers[0].Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	client := mongotest.Connect(t, "mongodb://"+servers[0].Addr()+"/?directConnection=true")
	db, cmd := parseCommand(t, f)
	if err := client.Database(db).RunCommand(bounded(t), cmd).Err(); err != nil {
		t.Fatal(err)
	}
	url += "&replicaSet=rs0" // as the remedy says
	r = examine(t, url)
	wantFound(t, r, "server", driver.LevelOK, "")
	wantFound(t, r, "change stream", driver.LevelOK, "")
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
