package doctor_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const (
	database = "app"
	locks    = "locks"
)

// mongoSet is a replica set with access control, whose members' clocks can be moved.
type mongoSet struct {
	*mongotest.ReplicaSet
	t      *testing.T
	admin  *mongo.Client
	clocks []*serverprocess.Clock
}

func startMongoSet(t *testing.T) *mongoSet {
	t.Helper()
	s := &mongoSet{t: t}
	for range 3 {
		clock, err := serverprocess.NewClock(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s.clocks = append(s.clocks, clock)
	}
	s.ReplicaSet = mongotest.StartReplicaSet(t, mongotest.Options{Auth: true, ElectionTimeout: 10 * time.Second,
		Env: func(member int) []string { return s.clocks[member].Env() }})
	s.admin = mongotest.Connect(t, s.URI())
	s.addUser("locker", bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: database}}, "clusterMonitor"})
	return s
}

// setClock moves a member's clock.
func (s *mongoSet) setClock(member int, offset time.Duration) {
	s.t.Helper()
	if err := s.clocks[member].Set(offset); err != nil {
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
