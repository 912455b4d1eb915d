package scalesim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// followerGroup is followers that all wait for the lock "led", each a process of its own.
type followerGroup struct {
	tb      testing.TB
	backend *backend
	all     []*process
	ctx     context.Context // of the waits
	cancel  context.CancelFunc
	waiting sync.WaitGroup
	grants  chan granted
}

// granted is a follower that has become the leader.
type granted struct {
	by   *process
	hold *holdfast.Hold
}

// newFollowerGroup makes followers that wait while the first process leads.
func newFollowerGroup(tb testing.TB, followers int, wake way) (*followerGroup, granted) {
	tb.Helper()
	c := &followerGroup{tb: tb, backend: newBackend(), grants: make(chan granted)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	leader := c.process(wake)
	hold, err := leader.Lock(c.ctx, "led")
	if err != nil {
		tb.Fatal(err)
	}
	for range followers {
		c.follow(c.process(wake))
	}
	return c, granted{leader, hold}
}

func (c *followerGroup) process(wake way) *process {
	p := newProcess(c.tb, c.backend, wake)
	c.all = append(c.all, p)
	return p
}

// follow makes a process wait for the lock.
func (c *followerGroup) follow(p *process) {
	c.waiting.Go(func() {
		h, err := p.Lock(c.ctx, "led")
		if err != nil {
			return // the end of the simulation
		}
		select {
		case c.grants <- granted{p, h}:
		case <-c.ctx.Done():
		}
	})
}

// handOver lets the leader release the lock, and returns the next leader. The old one then follows.
func (c *followerGroup) handOver(now granted) granted {
	c.tb.Helper()
	if err := now.hold.Release(c.ctx); err != nil {
		c.tb.Fatal(err)
	}
	next := <-c.grants
	c.follow(now.by)
	return next
}

func (c *followerGroup) end() {
	c.tb.Helper()
	c.cancel()
	c.waiting.Wait()
	for _, p := range c.all {
		p.end(c.tb)
	}
}

// cost is what happens to the group.
type cost struct {
	idle, handOver, crash phase
	memory                int64 // of one follower
}

const handOversMeasured = 10

func runFollowerGroup(tb testing.TB, followers int, wake way) (out cost) {
	empty := memoryUsed()
	c, leader := newFollowerGroup(tb, followers, wake)
	time.Sleep(time.Minute) // until all wait as they do from then on
	out.memory = (memoryUsed() - empty) / int64(followers)
	out.idle = c.backend.measure(func() { time.Sleep(time.Minute) })
	out.handOver = c.backend.measure(func() {
		for range handOversMeasured {
			leader = c.handOver(leader)
		}
	})
	time.Sleep(time.Minute)
	out.crash = c.backend.measure(func() {
		leader.by.crash()
		<-c.grants
	})
	c.end()
	tb.Logf("%d followers, woken by %s", followers, wake)
	tb.Logf("idle: %v, %d KiB for each", out.idle, out.memory>>10)
	tb.Logf("%d handoffs: %v", handOversMeasured, out.handOver)
	tb.Logf("crash: %v", out.crash)
	return out
}

func TestFollowersOfOneName(t *testing.T) {
	for _, wake := range []way{queued, watched, polls} {
		t.Run(string(wake), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				followers := size(10_000, 200)
				c := runFollowerGroup(t, followers, wake)
				idle := float64(c.idle.used.commands()) / float64(followers)
				if most := map[way]float64{queued: 4, watched: 6, polls: 70}[wake]; idle > most {
					t.Errorf("%.1f commands a minute and idle follower, more than %v", idle, most)
				}
				// What the idle ones do meanwhile is in the count.
				if most := int64(8*handOversMeasured + followers/100); wake == queued && c.handOver.used.commands() > most {
					t.Errorf("%d commands for %d handoffs, more than %d", c.handOver.used.commands(), handOversMeasured, most)
				}
				if most := 30*time.Second + 100*time.Millisecond; c.crash.took > most {
					t.Errorf("the lock of a crashed leader has another holder after %v, later than %v", c.crash.took, most)
				}
			})
		})
	}
}
