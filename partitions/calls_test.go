package partitions_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/partitions"
)

// A backend that fails while partitions are taken is left alone until the next look: it
// is not asked for each partition.
func TestPartitionsFailingBackendIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, atOnce = 500, 16
		f := locktest.NewFleet(t, n)
		in := f.Join(func(s *locktest.Link) { s.NoPartitions.Store(true) })
		time.Sleep(time.Minute)
		looks, tries := in.Link.GroupReads.Load(), in.Link.Attempts.Load()
		if tries < 100 || tries > 40*atOnce || looks > 120 { // after half a second at first, up to 2.5 s
			t.Errorf("%d attempts after %d looks in a minute", tries, looks)
		}
		in.Link.NoPartitions.Store(false)
		f.UntilEven(10 * time.Second)
		f.End()
	})
}

// An instance that leaves with very many partitions has a bounded number of releases under way.
func TestPartitionsReleasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 300, 64
		l := locktest.NewCallGauge(memory.New(), 10*time.Millisecond)
		c := locktest.NewClient(t, l)
		p, err := partitions.New(c, "group", n, locktest.WorkUntilCanceled)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		for end := time.Now().Add(time.Minute); len(p.Owned()) < n && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if len(p.Owned()) != n {
			t.Fatalf("%d owned", len(p.Owned()))
		}
		cancel()
		t.Logf("Run returned %v", <-done)
		if got := l.Highest(locktest.OpRelease); got < most || got > most+1 { // the place's is another
			t.Errorf("%d releases at once, want %d", got, most)
		}
	})
}

// slowRelease is a Locker whose answers to releases of partitions come late.
type slowRelease struct {
	*locktest.Link
	delay     time.Duration
	releasing atomic.Int64
	taken     atomic.Int64 // attempts at that partition meanwhile
	partition atomic.Pointer[string]
}

func (s *slowRelease) Release(ctx context.Context, l holdfast.Lease) error {
	err := s.Link.Release(ctx, l)
	if strings.Contains(l.Name, "member") || strings.Contains(l.Name, "bell") {
		return err
	}
	if s.partition.CompareAndSwap(nil, &l.Name) {
		s.releasing.Add(1)
		defer s.releasing.Add(-1)
		time.Sleep(s.delay)
	}
	return err
}

func (s *slowRelease) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if name := s.partition.Load(); name != nil && *name == req.Name && s.releasing.Load() > 0 {
		s.taken.Add(1)
	}
	return s.Link.TryAcquire(ctx, req)
}

// A partition that is being released is not taken again before the release has returned, also when
// it is seen free meanwhile.
func TestPartitionsNotTakenWhileBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 4)
		var slow *slowRelease
		f.Join(func(s *locktest.Link) {
			inner := &locktest.Link{Locker: s.Locker}
			slow = &slowRelease{Link: inner, delay: 3 * time.Second} // a release is waited for for a third of the TTL
			s.Locker = slow
		})
		f.UntilEven(2 * time.Second)
		two := f.Join(func(s *locktest.Link) { s.NoPartitions.Store(true) }) // it never takes what is free
		for slow.releasing.Load() == 0 {                                     // the first gives back
			time.Sleep(10 * time.Millisecond)
		}
		f.Leave(two)
		f.UntilEven(10 * time.Second)
		if n := slow.taken.Load(); n != 0 {
			t.Errorf("%d attempts at a partition that was being released", n)
		}
		f.End()
	})
}
