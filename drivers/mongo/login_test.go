package mongo

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// When a user is dropped and made again, the server logs out the connections of the old one, and answers "requires
// authentication" on each of them forever. The Locker of a URL connects again. The Locker of the program's client
// says that the program needs a new one.
func TestConnectionsThatTheServerHasLoggedOut(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	admin := mongotest.Connect(t, rs.URI())
	coll := mongotest.CollectionOf(t, admin)
	makeUser := func() {
		t.Helper()
		if err := admin.Database("admin").RunCommand(bounded(t), doc{field("createUser", "app"), field("pwd", "pw-app"),
			field("roles", bson.A{"readWriteAnyDatabase"})}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	dropUser := func() {
		t.Helper()
		if err := admin.Database("admin").RunCommand(bounded(t), docOf("dropUser", "app")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	makeUser()
	uri := strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword+"@", "app:pw-app@", 1)
	open := func() *Locker {
		t.Helper()
		l, err := Open(bounded(t), urlOf(uri, coll, "authSource=admin"), WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeLocker(t, l) })
		return l
	}
	opened := open()
	client := mongotest.Connect(t, uri+"&authSource=admin")
	given := newTestLocker(t, through(client, coll))
	mine, theirs := acquire(t, opened, longRequest("opened", "a")), acquire(t, given, longRequest("given", "b"))
	waiter := open()
	got := lockSoon(t, newClient(t, waiter), "given")
	awaitFollowed(t, waiter, "given") // it asks nothing while there is no user

	dropUser()
	makeUser()
	_, err := given.Renew(bounded(t), theirs)
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "needs a new client") || strings.Contains(err.Error(), "grant") {
		t.Errorf("the program's client: %v", err)
	}
	_, err = opened.Renew(bounded(t), mine)
	if err == nil || errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "has logged out") {
		t.Errorf("the client of the URL: %v", err)
	}
	wantLogin(t, opened, mine)
	if err := newTestLocker(t, coll).Release(bounded(t), theirs); err != nil {
		t.Fatal(err)
	}
	if err := awaitHold(t, got, "after the logout").Release(bounded(t)); err != nil {
		t.Fatal(err)
	}

	// A user who is gone is a lasting failure with advice; once the user is there again, so is the Locker.
	dropUser()
	eventually(t, "advice about the user", func() bool {
		_, err := opened.Renew(bounded(t), mine)
		return errors.Is(err, driver.ErrDenied) && strings.Contains(err.Error(), "check user, password")
	})
	makeUser()
	wantLogin(t, opened, mine)
}

// The answer that a privilege is missing repeats the command. A lock's name or owner in it does not make it another answer, which
// would be repeated forever and close all connections each time.
func TestMissingPrivilegeIsNoLogout(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"Command findAndModify requires authentication": true,
		"command find requires authentication":          true,
		`not authorized on app to execute command { findAndModify: "locks", query: { _id: "it requires authentication" } }`: false,
	} {
		if err := (mongo.CommandError{Code: codeUnauthorized, Message: message}); requiresLogin(err) != want || isPermanent(err) == want {
			t.Errorf("%s: a logout: %v, permanent: %v", message, requiresLogin(err), isPermanent(err))
		}
	}
	if requiresLogin(mongo.CommandError{Code: codeBadValue, Message: "it requires authentication"}) {
		t.Error("another code is a logout")
	}
}

// wantLogin waits until a lease can be renewed again.
func wantLogin(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	eventually(t, "the login", func() bool {
		_, err := l.Renew(bounded(t), lease)
		return err == nil
	})
}
