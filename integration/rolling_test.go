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

// Every server (of Azurite: frozen for a while) and every client is restarted, one after
// the other, while the clients elect a leader — never two leaders at once, terms' tokens rise, and after each
// restart there is a leader again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	t.Run("mongodb", func(t *testing.T) {
		t.Parallel()
		m := env.StartMongo(t, env.MongoOptions{})
		e := &election{t: t, url: m.URL(t), ttl: 10 * time.Second}
		e.start(5)
		for range 2 {
			for i := range 3 {
				env.Check(t, m.Kill(within(t), i))
				e.roll()
				env.Check(t, m.Restart(within(t), i))
				e.lead()
			}
		}
		e.stop()
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		a := env.StartAzurite(t, false)
		e := &election{t: t, url: a.FreshURL(t), ttl: 15 * time.Second}
		e.start(5)
		for range 3 {
			// Stopped while clients are at work the emulator forgets what it has
			// acknowledged; frozen it does not.
			env.Check(t, a.Pause(within(t)))
			e.roll()
			env.Check(t, a.Resume(within(t)))
			e.roll()
			e.lead()
		}
		e.stop()
	})
}

// election is some clients that elect a leader, and a witness of their terms.
type election struct {
	t   *testing.T
	url string
	ttl time.Duration

	members []*member
	rolled  int

	mu     sync.Mutex
	leader uint64 // the token of who leads now, or 0
	last   uint64
	terms  int
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
	e.lead()
}

// roll restarts the next client.
func (e *election) roll() {
	i := e.rolled % len(e.members)
	e.rolled++
	e.members[i].cancel()
	<-e.members[i].done
	e.members[i] = e.join(i)
}

func (e *election) join(i int) *member {
	ctx, cancel := context.WithCancel(e.t.Context())
	m := &member{cancel, make(chan struct{})}
	go func() {
		defer close(m.done)
		// A backend that is being restarted refuses the client for a while.
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
		e.enter(token)
		<-ctx.Done()
		e.leave(token)
		return context.Cause(ctx)
	})
}

func (e *election) enter(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader != 0 || token <= e.last {
		e.t.Errorf("token %d leads while %d does, after %d", token, e.leader, e.last)
	}
	e.leader, e.last = token, max(e.last, token)
	e.terms++
}

func (e *election) leave(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader == token {
		e.leader = 0
	}
}

// lead waits until somebody leads.
func (e *election) lead() {
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
	if e.terms < 2 {
		e.t.Error(errors.New("nobody but the first one led"))
	}
	e.t.Logf("%d terms", e.terms)
}
