package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/driver"
)

// The soak of "holdfast certify --for": so many clients contend for so many locks. Most holds are short, and some are renewed.
const (
	soakClients  = 4
	soakLocks    = 3
	soakTTL      = 5 * time.Second // or the backend's minimum
	soakShort    = 200 * time.Millisecond
	soakRenewed  = 30 // of so many holds one lasts for longer than its TTL
	soakProblems = 10 // more are not quoted
)

// soak is what the clients of a soak have seen of each other.
type soak struct {
	Seconds  float64  `json:"seconds"`
	Clients  int      `json:"clients"`
	Locks    int      `json:"locks"`
	Holds    int      `json:"holds"`
	Losses   int      `json:"losses"` // ends of a hold without a release, which are allowed
	Problems []string `json:"problems"`

	mu     sync.Mutex
	live   map[string]*holdfast.Hold // of each lock, that whose function has not returned
	tokens map[string]uint64         // of each lock that was granted
}

func newSoak() *soak {
	return &soak{Clients: soakClients, Locks: soakLocks, Problems: []string{}, live: map[string]*holdfast.Hold{}, tokens: map[string]uint64{}}
}

// soakFor lets clients with connections of their own contend for locks. Contexts of two holders must not be live at the same time,
// tokens must rise, and each lock must be granted. Outages, and holds that are lost, are allowed. progress is called now and then.
func soakFor(ctx context.Context, backend string, length time.Duration, progress func(holds int, left time.Duration)) (*soak, error) {
	s := newSoak()
	b := bench.NewBackend(backend)
	begun, end := time.Now(), time.Now().Add(length)
	working, stop := context.WithDeadline(ctx, end)
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	for range soakClients {
		client, err := b.Client(ctx)
		if err != nil {
			stop()
			return nil, err
		}
		clients.Go(func() {
			s.work(working, client)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			_ = client.Shutdown(ctx) // a lock that stays held is removed with the rest
		})
	}
	every := time.NewTicker(30 * time.Second)
	defer every.Stop()
	for working.Err() == nil {
		select {
		case <-working.Done():
		case <-every.C:
			s.mu.Lock()
			holds := s.Holds
			s.mu.Unlock()
			progress(holds, time.Until(end))
		}
	}
	clients.Wait()
	s.Seconds = time.Since(begun).Seconds()
	return s, ctx.Err()
}

// work takes one lock after another until ctx ends.
func (s *soak) work(ctx context.Context, client *holdfast.Client) {
	ttl := max(soakTTL, client.Info().Limits.MinTTL)
	for ctx.Err() == nil {
		name, length := fmt.Sprintf("soak-%d", rand.N(soakLocks)), rand.N(soakShort)
		if rand.N(soakRenewed) == 0 {
			length += ttl + ttl/2
		}
		asked := time.Now()
		err := client.Do(ctx, name, func(ctx context.Context) error {
			s.hold(ctx, name, length)
			return nil
		}, holdfast.WithTTL(ttl))
		s.checkGranted(name, time.Since(asked), ttl)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, holdfast.ErrLost):
			s.mu.Lock()
			s.Losses++
			s.mu.Unlock()
		default:
			s.problem(driver.ErrorText(err))
			select { // a backend that refuses is not asked without a pause
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// checkGranted notes a lock that no client has ever held, although one has waited for it. Any other wait may be that of an outage.
func (s *soak) checkGranted(name string, waited, ttl time.Duration) {
	s.mu.Lock()
	_, granted := s.tokens[name]
	s.mu.Unlock()
	if !granted && waited > ttl {
		s.problem(fmt.Sprintf("no client was granted %q, although one has waited for %s", name, driver.FormatDuration(waited.Round(time.Second))))
	}
}

// hold is the work under a lock: it compares this hold with the one before. After a suspend of the machine their Err, which reads the
// clock, knows of an end before their contexts do.
func (s *soak) hold(ctx context.Context, name string, length time.Duration) {
	me, _ := holdfast.HoldFromContext(ctx)
	token := me.Token()
	s.mu.Lock()
	s.Holds++
	before, last := s.live[name], s.tokens[name]
	s.live[name], s.tokens[name] = me, max(last, token)
	s.mu.Unlock()
	if before != nil && before.Err() == nil && me.Err() == nil {
		s.problem(fmt.Sprintf("two clients held %q at the same time, with the tokens %d and %d", name, last, token))
	}
	if token <= last && me.Err() == nil { // a holder that was paused before it began may come after the next one
		s.problem(fmt.Sprintf("token %d of %q was granted after %d", token, name, last))
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[name] == me {
		delete(s.live, name)
	}
}

func (s *soak) problem(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Problems) < soakProblems && !slices.Contains(s.Problems, text) {
		s.Problems = append(s.Problems, text)
	}
}
