package mongo

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// firstWakingRelease is what the first release with waiters sends, if nobody has made the collection of their hints.
var firstWakingRelease = []string{"findAndModify", "listCollections", "create", "insert", "find"}

// The commands of a handoff that the waiter waits for are not numbered, so the servers write no record of
// them. The acquires are: one that comes late could take the lock for nobody.
func TestReleaseToWaitersIsNotRecorded(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	base := mongotest.Collection(t)
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(commands.monitor()))
	l := newTestLocker(t, through(client, base))
	commands.take()
	lease := acquire(t, l, longRequest("job", "holder"))
	if _, err := commands.take()[0].LookupErr("txnNumber"); err != nil {
		t.Errorf("the acquire is not numbered: %v", err)
	}
	enterQueue(t, base, "job")
	lease.Contended = true
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	sent := commands.take()
	for _, c := range sent {
		if _, err := c.LookupErr("txnNumber"); err == nil {
			t.Errorf("%s is numbered", firstField(c))
		}
	}
	if got := commandNames(sent); !slices.Equal(got, firstWakingRelease) {
		t.Errorf("the release sent %v, want %v", got, firstWakingRelease)
	}
}

// After an error the release and the hint are sent again as the Go driver sends commands: whether the
// first one has taken effect or not, the lock is released and the waiter woken. A waiter that nothing else
// can wake shows it.
func TestReleaseToWaitersAfterErrors(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	holder := newVictim(t, commands.monitor())
	for what, fault := range map[string]struct {
		command string
		how     bson.E
	}{
		"a release that is lost": {"findAndModify", field("closeConnection", true)},
		"a release whose answer is an error": {"findAndModify", field("writeConcernError", doc{{Key: "code", Value: codeWriteConcernTimeout},
			{Key: "errmsg", Value: "timed out"}})},
		"a release to a deposed primary":      {"findAndModify", field("errorCode", 10107)},
		"a hint that is lost":                 {"insert", field("closeConnection", true)},
		"a hint to a deposed primary":         {"insert", field("errorCode", 10107)},
		"a hint that the server cannot write": {"insert", field("errorCode", codeBadValue)},
	} {
		lease := acquire(t, holder.Locker, longRequest(what, "holder"))
		lease.Contended = true
		c, l := newProcess(t, through(mongotest.Connect(t, holder.rs.URI()), holder.base), hintsOnly)
		got := lockSoon(t, c, what)
		awaitFollowed(t, l, what)
		commands.take()
		holder.fail(t, docOf("times", 1), list{fault.command}, fault.how)
		if err := holder.Release(bounded(t), lease); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		awaitHold(t, got, what)
		sent := 0
		for _, name := range commandNames(commands.take()) {
			if name == fault.command {
				sent++
			}
		}
		if sent != 2 {
			t.Errorf("%s: %s was sent %d times", what, fault.command, sent)
		}
	}
}

// An error that a retry cannot mend, such as a missing privilege, is not repeated.
func TestPermanentErrorsAreNotRepeated(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	holder := newVictim(t, commands.monitor())
	lease := acquire(t, holder.Locker, longRequest("job", "holder"))
	enterQueue(t, holder.base, "job")
	lease.Contended = true
	commands.take()
	holder.fail(t, "alwaysOn", list{"insert"}, field("errorCode", codeUnauthorized))
	defer holder.spare(t)
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	if got := commandNames(commands.take()); !slices.Equal(got, firstWakingRelease) {
		t.Errorf("the release sent %v, want %v", got, firstWakingRelease)
	}
}
