package mongo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The replica set has access control and can be frozen. The Lockers are opened by the URL of a user with the usual role.
func TestConformanceReplicaSet(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Auth: true, ElectionTimeout: 10 * time.Second})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	const user, password = "app", "password-of-the-app"
	role := list{doc{field("role", "readWrite"), field("db", coll.Database().Name())}}
	administer := func(command string, fields ...bson.E) error {
		return coll.Database().Client().Database("admin").RunCommand(bounded(t), append(doc{field(command, user)}, fields...)).Err()
	}
	if err := administer("createUser", field("pwd", password), field("roles", role)); err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword, user+":"+password, 1)
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			// As long as a busy machine may need, and shorter than the election timeout: a set that hangs until a call gives up elects nobody.
			l, err := driver.Open(t.Context(), urlOf(at, coll, "authSource=admin", "commandTimeout=8s"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeLocker(t, l) })
			return l
		},
		Forget: forget(coll),
		// All members: if only the primary freezes, the others elect one that answers.
		Stall: func(context.Context, string) (func(), error) {
			var errs []error
			for member := range rs.Hosts() {
				errs = append(errs, rs.Pause(member))
			}
			return func() {
				for member := range rs.Hosts() {
					if err := rs.Resume(member); err != nil {
						t.Error(err)
					}
				}
			}, errors.Join(errs...)
		},
		FailOver: func(ctx context.Context) error {
			primary, err := rs.Primary(ctx)
			if err == nil {
				err = rs.Kill(primary)
			}
			if err == nil {
				_, err = rs.Primary(ctx) // the next one
			}
			return errors.Join(err, rs.Restart(ctx, primary))
		},
		Deny: func(context.Context, string) (func(), error) {
			return func() {
				if err := administer("grantRolesToUser", field("roles", role)); err != nil {
					t.Error(err)
				}
			}, administer("revokeRolesFromUser", field("roles", role))
		},
		Damage:  damage(t, coll),
		Secrets: []string{password},
	})
}

// The Lockers share the program's own client.
func TestConformanceStandalone(t *testing.T) {
	t.Parallel()
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t)))
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l, err := New(t.Context(), coll, WithLogger(discard))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeLocker(t, l) })
			return l
		},
		Forget:  forget(coll),
		Damage:  damage(t, coll),
		Without: []string{"Deny", "Stall"}, // the replica set can be frozen, and has users
	})
}

func forget(coll *mongo.Collection) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		_, err := coll.DeleteOne(ctx, docOf(fieldName, name))
		return err
	}
}

// damage makes the token of a lock a text.
func damage(t *testing.T, coll *mongo.Collection) func(context.Context, string) (func(), error) {
	return func(ctx context.Context, name string) (mend func(), err error) {
		before, err := coll.FindOneAndUpdate(ctx, docOf(fieldName, name), setFields(field(fieldToken, "x"))).Raw()
		return func() { overwrite(t, coll, name, field(fieldToken, before.Lookup(fieldToken))) }, err
	}
}

// urlOf adds the collection's database and name to a connection string.
func urlOf(uri string, coll *mongo.Collection, options ...string) string {
	base, query, _ := strings.Cut(uri, "?")
	options = append(options, query, paramCollection+"="+coll.Name())
	return base + coll.Database().Name() + "?" + strings.Join(options, "&")
}
