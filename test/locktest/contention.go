package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// MultiContention is what callers of many names at once do: each Client takes a random set of the names again and again.
type MultiContention struct {
	Clients, Names, Least, Most int
	Rounds                      int           // of each Client
	Work                        time.Duration // under the locks
	Singles                     int           // how many of the Clients take a single name with Do
	Groups                      int           // of Names, each with its share of the Clients; default: 1
	OneLock                     bool          // a single lock over all names instead, for comparison
}

// FiftyOfTwenty is the measured scenario: 50 Clients, random sets of 2 to 8 of 20 names.
func FiftyOfTwenty(rounds int, work time.Duration) MultiContention {
	return MultiContention{Clients: 50, Names: 20, Least: 2, Most: 8, Rounds: rounds, Work: work}
}

// MultiResult is the outcome.
type MultiResult struct {
	Holds         int
	Took          time.Duration
	Mean, Longest time.Duration // of the waits for sets of names
	AtWork        float64       // how many callers worked at the same time, on average
}

// Unfairness is the longest wait in means.
func (r MultiResult) Unfairness() float64 { return float64(r.Longest) / float64(r.Mean) }

// PerSecond is the throughput.
func (r MultiResult) PerSecond() float64 { return float64(r.Holds) / r.Took.Seconds() }

func (r MultiResult) String() string {
	return fmt.Sprintf("%d holds in %v: %.1f/s, %.2f at work, wait %v on average, %v at most (%.2f means)",
		r.Holds, r.Took, r.PerSecond(), r.AtWork, r.Mean, r.Longest, r.Unfairness())
}

// Run runs the scenario and checks that no name has two holders. client returns the Client of a caller.
func (m MultiContention) Run(tb testing.TB, client func(i int) *holdfast.Client) MultiResult {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		r      MultiResult
		total  time.Duration
		waits  int
		owners = make([]atomic.Int32, m.Names*max(m.Groups, 1))
	)
	names := Names("account-", m.Names*max(m.Groups, 1))
	start := time.Now()
	for i := range m.Clients {
		c, random := client(i), rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range m.Rounds {
				size := m.Least + random.IntN(m.Most-m.Least+1)
				if i < m.Singles {
					size = 1
				}
				picked := random.Perm(m.Names)[:size]
				var set []string
				for k := range picked {
					picked[k] += i % max(m.Groups, 1) * m.Names
				}
				for _, k := range picked {
					set = append(set, names[k])
				}
				asked := time.Now()
				work := func(ctx context.Context) error {
					waited := time.Since(asked)
					mu.Lock()
					r.Holds++
					if size > 1 {
						total += waited
						waits++
						r.Longest = max(r.Longest, waited)
					}
					mu.Unlock()
					for _, k := range picked {
						if owners[k].Add(1) != 1 {
							tb.Errorf("%s has two holders", names[k])
						}
					}
					time.Sleep(m.Work)
					for _, k := range picked {
						owners[k].Add(-1)
					}
					return nil
				}
				var err error
				switch {
				case m.OneLock:
					err = c.Do(ctx, "all", work)
				case size == 1:
					err = c.Do(ctx, set[0], work)
				default:
					err = c.DoAll(ctx, set, work)
				}
				if err != nil {
					tb.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.Took = time.Since(start)
	if waits > 0 {
		r.Mean = total / time.Duration(waits)
	}
	r.AtWork = float64(r.Holds) * m.Work.Seconds() / r.Took.Seconds()
	return r
}

// Test runs the scenario with so many processes, and expects that nobody waits for more than most means.
func (m MultiContention) Test(t *testing.T, processes int, most float64, locker func() holdfast.Locker) {
	t.Helper()
	r := m.Run(t, m.clients(t, processes, locker))
	if t.Log(r); r.Unfairness() > most {
		t.Errorf("the longest wait is %.2f times the mean", r.Unfairness())
	}
}

// clients makes a Client for each process. The callers share them evenly.
func (m MultiContention) clients(tb testing.TB, processes int, locker func() holdfast.Locker) func(i int) *holdfast.Client {
	clients := make([]*holdfast.Client, processes)
	for i := range clients {
		clients[i] = NewClient(tb, locker())
	}
	return func(i int) *holdfast.Client { return clients[i%processes] }
}

// Bench runs the scenario with so many processes, and the same with a single lock over all names, and reports both.
func (m MultiContention) Bench(b *testing.B, processes int, locker func() holdfast.Locker) {
	b.Helper()
	client := m.clients(b, processes, locker)
	single := m
	single.OneLock = true
	var several, one MultiResult
	for b.Loop() {
		several, one = m.Run(b, client), single.Run(b, client)
	}
	b.ReportMetric(several.Unfairness(), "longest/mean")
	b.ReportMetric(several.PerSecond(), "holds/s")
	b.ReportMetric(several.PerSecond()/one.PerSecond(), "of-one-lock")
	b.ReportMetric(several.Mean.Seconds()*1000, "mean-ms")
}
