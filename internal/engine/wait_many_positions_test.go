package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// positions counts the requests that give positions in queues, and those positions that ended before they were refreshed.
type positions struct {
	*locktest.Faulty
	mu           sync.Mutex
	ends         map[string]time.Time
	asked, ended int
}

func (p *positions) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	p.mu.Lock()
	ends, waits := p.ends[req.Name]
	if now := time.Now(); waits && ends.Before(now) {
		p.ended++
	}
	p.asked++
	p.ends[req.Name] = time.Now().Add(req.QueueFor)
	p.mu.Unlock()
	return p.Faulty.TryAcquire(ctx, req)
}

func (p *positions) take() (asked, ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, p.asked = p.asked, 0
	return asked, p.ended
}

// A process that waits for a thousand names keeps its positions in their queues. The requests for the first names asked for short
// positions, when there were few names; they are refreshed in time, at the rate at which positions are refreshed later.
func TestThousandPositionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 1000
		store := memory.NewStore()
		_, f := process(t, store)
		p := &positions{Faulty: f, ends: map[string]time.Time{}}
		c := locktest.NewClient(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for i := range count {
			deadHolder(t, store, fmt.Sprint("job-", i), 24*time.Hour)
			wg.Go(func() { _, _ = c.Lock(ctx, fmt.Sprint("job-", i)) })
		}
		time.Sleep(time.Second)
		if asked, _ := p.take(); asked != count {
			t.Errorf("%d requests at first", asked)
		}
		for range 7 { // minutes, before most positions are refreshed together
			time.Sleep(time.Minute)
			if asked, _ := p.take(); asked > 3*32 {
				t.Errorf("%d requests in a minute", asked)
			}
		}
		time.Sleep(33 * time.Minute)
		if asked, ended := p.take(); asked > 5*count || ended > 0 {
			t.Errorf("%d requests in 33 minutes; %d positions ended before they were refreshed", asked, ended)
		}
		cancel()
		wg.Wait()
	})
}
