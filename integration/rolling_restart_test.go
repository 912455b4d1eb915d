package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
)

// Every server and every client is restarted, one after another, while the clients elect a leader
// (Azurite is frozen for a moment instead) — there are never two leaders at the same time, leader
// tokens rise, and after each restart there is a leader again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	t.Run("mongodb", func(t *testing.T) {
		t.Parallel()
		m := env.StartMongo(t, env.MongoOptions{})
		e := &election{t: t, url: m.URL(t), ttl: 10 * time.Second}
		e.start(5)
		for range 2 {
			for i := range 3 {
				env.Check(t, m.Kill(testContext(t), i))
				e.restartNext()
				env.Check(t, m.Restart(testContext(t), i))
				e.awaitLeader()
			}
		}
		e.stop()
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		p := env.StartPostgres(t, env.PostgresOptions{})
		e := &election{t: t, url: p.URL(t), ttl: 10 * time.Second}
		e.start(5)
		for range 4 {
			old := p.Primary()
			env.Check(t, p.Kill(testContext(t), old))
			e.restartNext()
			env.Check(t, p.Promote(testContext(t), 1-old))
			env.Check(t, p.Follow(testContext(t), old, true))
			e.awaitLeader()
		}
		e.stop()
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		a := env.StartAzurite(t, false)
		e := &election{t: t, url: a.FreshURL(t), ttl: 15 * time.Second}
		e.start(5)
		for range 3 {
			// A stopped Azurite forgets writes that it has acknowledged; a frozen one does not.
			env.Check(t, a.Pause(testContext(t)))
			e.restartNext()
			env.Check(t, a.Resume(testContext(t)))
			e.restartNext()
			e.awaitLeader()
		}
		e.stop()
	})
}

// election runs clients that elect a leader, and checks their leaderships.
type election struct {
	t   *testing.T
	url string
	ttl time.Duration

	members  []*member
	restarts int

	mu          sync.Mutex
	leader      uint64 // the token of the current leader, or 0
	last        uint64
	leaderships int
}

type member struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (e *election) start(n int) {
	e.members = make([]*member, n)
	for i := range n {
		e.members[i] = e.join(i)
	}
	e.awaitLeader()
}

// restartNext restarts the next client.
func (e *election) restartNext() {
	i := e.restarts % len(e.members)
	e.restarts++
	e.members[i].cancel()
	<-e.members[i].done
	e.members[i] = e.join(i)
}

func (e *election) join(i int) *member {
	ctx, cancel := context.WithCancel(e.t.Context())
	m := &member{cancel, make(chan struct{})}
	go func() {
		defer close(m.done)
		// A restarting backend refuses the client for a while.
		for ctx.Err() == nil && e.campaign(ctx, i) != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return m
}

func (e *election) campaign(ctx context.Context, i int) error {
	client, err := holdfast.Open(ctx, e.url, holdfast.WithTTL(e.ttl), holdfast.WithOwner(fmt.Sprint("member ", i)))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = client.Shutdown(ctx) // the servers may be in any state
	}()
	r, err := holdfast.NewLeaderAwareRunner(client, "leader")
	if err != nil {
		return err
	}
	return r.Run(ctx, func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		e.elected(token)
		<-ctx.Done()
		e.ended(token)
		return context.Cause(ctx)
	})
}

func (e *election) elected(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader != 0 || token <= e.last {
		e.t.Errorf("token %d was elected while token %d leads; the highest token before is %d", token, e.leader, e.last)
	}
	e.leader, e.last = token, max(e.last, token)
	e.leaderships++
}

func (e *election) ended(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader == token {
		e.leader = 0
	}
}

// awaitLeader waits until there is a leader.
func (e *election) awaitLeader() {
	e.t.Helper()
	eventually(e.t, "a leader", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.leader != 0
	})
}

func (e *election) stop() {
	for _, m := range e.members {
		m.cancel()
		<-m.done
	}
	if e.leaderships < 2 {
		e.t.Error(errors.New("there was only one leadership"))
	}
	e.t.Logf("%d leaderships", e.leaderships)
}
