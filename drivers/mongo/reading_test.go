package mongo

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The role read is enough to read locks. Reading makes no collection and no index, and says which
// collection does not exist.
func TestReadingNeedsTheRoleReadAlone(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	ctx := bounded(t)
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	db := coll.Database()
	resource := doc{{Key: "db", Value: db.Name()}, {Key: "collection", Value: coll.Name()}}
	for _, cmd := range []bson.D{
		{{Key: "createUser", Value: "reader"}, {Key: "pwd", Value: "pw-reader"}, {Key: "roles", Value: list{"read"}}},
		{{Key: "createRole", Value: "finder"},
			{Key: "privileges", Value: list{doc{{Key: "resource", Value: resource}, {Key: "actions", Value: list{"find"}}}}},
			{Key: "roles", Value: list{}}},
		{{Key: "createUser", Value: "finder"}, {Key: "pwd", Value: "pw-finder"}, {Key: "roles", Value: list{"finder"}}},
	} {
		if err := db.RunCommand(ctx, cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	urlFor := func(user string) string {
		return urlOf(strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword, user+":pw-"+user, 1), coll,
			"authSource="+db.Name())
	}
	open := func(user string) driver.Locker {
		t.Helper()
		l, err := driver.OpenForReading(ctx, urlFor(user))
		if err != nil {
			t.Fatalf("as %s: %v", user, err)
		}
		t.Cleanup(func() { closeLocker(t, l.(*Locker)) })
		return l
	}
	reader := open("reader")
	if r, err := reader.Inspect(ctx, "job"); err != nil || r.State != driver.StateFree {
		t.Errorf("without a collection the lock is %v, error %v", r, err)
	}
	if missing, err := driver.MissingStore(ctx, reader); missing != "the collection "+db.Name()+"."+coll.Name() || err != nil {
		t.Errorf("missing: %q, error %v", missing, err)
	}
	if names, err := db.ListCollectionNames(ctx, doc{}); err != nil || slices.Contains(names, coll.Name()) {
		t.Errorf("reading has made a collection: %v, error %v", names, err)
	}

	lease, err := newTestLocker(t, coll).TryAcquire(ctx, request("job", "first"))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"reader", "finder"} {
		l := open(user)
		if r, err := l.Inspect(ctx, "job"); err != nil || r.Token != lease.Token || r.State != driver.StateHeld {
			t.Errorf("%s reads %v, error %v", user, r, err)
		}
		found := 0
		for r, err := range l.Capabilities().Lister.List(ctx, "") {
			if err != nil || r.Token != lease.Token {
				t.Errorf("%s lists %v, error %v", user, r, err)
			}
			found++
		}
		if found != 1 {
			t.Errorf("%s lists %d locks", user, found)
		}
		if _, errs := l.Capabilities().BatchInspector.InspectBatch(ctx, "", []string{"job"}); errs[0] != nil {
			t.Errorf("%s: %v", user, errs[0])
		}
		if missing, err := driver.MissingStore(ctx, l); missing != "" || err != nil {
			t.Errorf("%s: missing: %q, error %v", user, missing, err)
		}
		if _, err := l.TryAcquire(ctx, request("other", "second")); !hasCode(err, codeUnauthorized) {
			t.Errorf("%s acquires: %v", user, err)
		}
		// A Locker for locks needs the right to take them, and says so at once.
		if _, err := driver.Open(ctx, urlFor(user)); !hasCode(err, codeUnauthorized) {
			t.Errorf("%s opens: %v", user, err)
		}
	}
}
