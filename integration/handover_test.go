//go:build unix

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/integration/env"
)

// One process releases a lock for which two others wait; while no majority can acknowledge anything,
// the primary applies the release and the first waiter's request, and is then killed, three times —
// neither is reported before a majority has it, no two processes are ever granted the lock at the
// same time, tokens rise, and the queue goes on.
func TestPrimaryKilledBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const name = "job"
	// The primary stays one while its secondaries are frozen, however long that takes.
	m := env.StartMongo(t, env.MongoOptions{ElectionTimeout: time.Minute, NoChaining: true})
	database := m.Database(t)
	url := m.LockURL(database.Name())
	locks, viewer := database.Collection(mongo.DefaultCollection), open(t, url)
	// leaseID returns that of the holder, by the primary's own data, which no other member may have.
	leaseID := func() string {
		var r struct {
			ID string `bson:"kid"`
		}
		if err := locks.FindOne(testContext(t), bson.D{{Key: "_id", Value: name}}).Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	awaitWaiters := func(n int) {
		eventually(t, "the waiters are in the queue", func() bool {
			r, err := viewer.Inspect(testContext(t), name)
			return err == nil && r.Waiters == n
		})
	}
	first, err := viewer.Lock(testContext(t), name)
	env.Check(t, err)
	var processes []*workerProcess // the holder, and the waiters in their order
	for i := range 3 {
		p := startWorker(t, job{Role: "commands", URL: url, Name: name, TTL: 2 * time.Minute})
		p.send("lock")
		awaitWaiters(i + 1)
		processes = append(processes, p)
	}
	release(t, first)
	last := processes[0].expectInt("token")
	for round := range 3 {
		primary, err := m.Primary(testContext(t))
		env.Check(t, err)
		holder, waiters := processes[0], processes[1:]
		held := leaseID()
		others := slices.DeleteFunc([]int{0, 1, 2}, func(member int) bool { return member == primary })
		for _, member := range others {
			env.Check(t, m.Pause(testContext(t), member))
		}
		holder.send("release")
		eventually(t, "the first waiter's request is applied on the primary", func() bool { id := leaseID(); return id != "" && id != held })
		time.Sleep(500 * time.Millisecond) // a reply would come at once
		for _, p := range processes {
			select {
			case line := <-p.lines:
				t.Errorf("round %d: a process reports %q, which no majority has", round, line)
			default:
			}
		}
		env.Check(t, m.Kill(testContext(t), primary))
		for _, member := range others {
			env.Check(t, m.Resume(testContext(t), member))
		}
		killed := time.Now()
		elect(t, m, others)
		if outcome := holder.expect("released"); outcome != "<nil>" {
			t.Errorf("round %d: the release returned %s", round, outcome)
		}
		next, token := firstGranted(t, waiters)
		t.Logf("round %d: granted %s after the kill", round, time.Since(killed).Round(time.Millisecond))
		if token <= last {
			t.Errorf("round %d: token %d was granted after token %d", round, token, last)
		}
		last = token
		if holder.query("err", "err") == "<nil>" {
			t.Errorf("round %d: the released hold is live", round)
		}
		env.Check(t, m.Restart(testContext(t), primary))
		awaitWaiters(1)
		waiters = slices.DeleteFunc(slices.Clone(waiters), func(p *workerProcess) bool { return p == next })
		for _, p := range waiters {
			if len(p.lines) > 0 {
				t.Errorf("round %d: a second process reports %q", round, <-p.lines)
			}
		}
		if got := next.query("err", "err"); got != "<nil>" {
			t.Errorf("round %d: the new hold ended: %s", round, got)
		}
		holder.send("lock")
		awaitWaiters(2)
		processes = append(append([]*workerProcess{next}, waiters...), holder)
	}
}

// elect makes one of the members the primary, without the wait for the election timeout.
func elect(t *testing.T, m *env.Mongo, members []int) {
	t.Helper()
	eventually(t, "a member is elected", func() bool {
		return slices.ContainsFunc(members, func(member int) bool { return m.StepUp(testContext(t), member) == nil })
	})
}

// firstGranted waits until one of the waiters has been granted the lock, and returns its token.
func firstGranted(t *testing.T, waiters []*workerProcess) (granted *workerProcess, token int64) {
	t.Helper()
	eventually(t, "a waiter is granted the lock", func() bool {
		for _, w := range waiters {
			select {
			case line, ok := <-w.lines:
				if !ok {
					t.Fatal("a waiting process has ended")
				}
				if text, isToken := strings.CutPrefix(line, "token "); isToken {
					granted, token = w, parse(t, text)
					return true
				}
			default:
			}
		}
		return false
	})
	return granted, token
}
