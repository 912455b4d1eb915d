package nats

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// compete has four clients compete for a lock while faults happen.
func compete(t *testing.T, rawURL string, faults int, fault func(round int) error) {
	t.Helper()
	var lockers []driver.Locker
	for range 4 {
		lockers = append(lockers, openAt(t, rawURL, WithRequestTimeout(time.Second), onlyReads))
	}
	castest.Compete(t, castest.Competition{Lockers: lockers, Faults: faults, Fault: fault})
}

// The only server is killed again and again while clients compete.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.Users(), jetStream)
	openAt(t, s.URL()+"/locks")
	compete(t, s.URL()+"/locks", 5, func(int) error { return s.Crash(t.Context()) })
}

// The network loses answers, delays requests beyond their time limit, and sends them twice, while clients compete.
func TestFailingNetwork(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.Users(), jetStream)
	openAt(t, s.URL()+"/locks")
	proxy := castest.NewProxy(t, s.Addr())
	modes := []castest.Mode{castest.LoseAnswers, castest.Stall, castest.Double, castest.Refuse}
	compete(t, natstest.At(proxy.Addr())+"/locks", 2*len(modes), func(round int) error {
		mode := modes[round%len(modes)]
		if mode == castest.Double {
			proxy.Set(mode)
			proxy.Cut() // only new connections are doubled
		}
		proxy.Set(mode)
		time.Sleep(1500 * time.Millisecond) // longer than the time limit of a request
		proxy.Set(castest.Pass)
		return nil
	})
}

// openCluster opens a bucket as soon as the JetStream of a cluster has a leader.
func openCluster(t *testing.T, rawURL string) *Locker {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		l, err := Open(t.Context(), rawURL)
		if err == nil {
			t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
			return l
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Programs that start together try conditional writes of one value. A cluster refuses a write at once while another one is under way, which
// is no fault.
func TestManyOpenACluster(t *testing.T) {
	t.Parallel()
	rawURL := natstest.URLOf(natstest.StartCluster(t, 3)...) + "/locks"
	openCluster(t, rawURL)
	var programs sync.WaitGroup
	for range 8 {
		programs.Go(func() {
			for range 5 {
				l, err := Open(t.Context(), rawURL)
				if err != nil {
					t.Error(err)
					return
				}
				_ = l.Close(context.WithoutCancel(t.Context()))
			}
		})
	}
	programs.Wait()
}

// Of three servers the one that leads the stream is killed, or paused until another one leads, while clients compete.
func TestFailingCluster(t *testing.T) {
	t.Parallel()
	all := natstest.StartCluster(t, 3)
	rawURL := natstest.URLOf(all...) + "/locks"
	l := openCluster(t, rawURL)
	leader := func() *natstest.Server {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			c, err := l.store.link.use(t.Context())
			if err != nil {
				continue
			}
			info, err := l.store.streamInfo(t.Context(), c, nil)
			var i int
			if err != nil || info.Cluster == nil {
				continue
			}
			if info.Config.Replicas != 3 {
				t.Fatalf("%d replicas", info.Config.Replicas)
			}
			if _, err := fmt.Sscanf(info.Cluster.Leader, "n%d", &i); err == nil {
				return all[i]
			}
		}
		t.Fatal("the stream has no leader")
		return nil
	}
	compete(t, rawURL, 4, func(round int) error {
		s := leader()
		if round%2 == 0 {
			if err := s.Kill(); err != nil {
				return err
			}
			time.Sleep(3 * time.Second)
			return s.Restart(context.WithoutCancel(t.Context()))
		}
		if err := s.Pause(); err != nil {
			return err
		}
		time.Sleep(8 * time.Second) // another one leads, and this one still believes that it does
		return s.Resume()
	})
}
