package waiter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// world is the Env of a Waiter, with the clock that its events are given.
type world struct {
	now     time.Duration
	memory  *sightings.Memory
	seen    map[int]*sightings.Sighting
	ids     int
	rounds  int64
	crowded bool
	rng     *rand.Rand // nil: every draw is the middle, so that jitter changes nothing
}

func newWorld() *world {
	v := &world{seen: map[int]*sightings.Sighting{}, rounds: 1}
	v.memory = sightings.New(func() time.Duration { return v.now })
	return v
}

func (v *world) NewID() driver.LeaseID {
	v.ids++
	return driver.NewLeaseID(fmt.Sprint("id", v.ids))
}

func (v *world) Random(d time.Duration) time.Duration {
	if v.rng != nil {
		return time.Duration(v.rng.Int64N(int64(d)))
	}
	return d / 2
}

func (v *world) See(slot int, r driver.Record) {
	v.seen[slot] = v.memory.See(fmt.Sprint(slot), r, v.seen[slot])
}

func (v *world) StuckAt(slot int) time.Duration { return v.memory.StuckAt(v.seen[slot]) }
func (v *world) RefreshRounds() int64           { return v.rounds }
func (v *world) Crowded(time.Duration) bool     { return v.crowded }

const (
	ttl     = 30 * time.Second
	poll    = 5 * time.Second
	watched = 20 * time.Second
	backoff = ttl / 100 // after the first failure
	ms      = time.Millisecond
)

// newWaiter returns a Waiter for a lock with n slots, and its world.
func newWaiter(n int, t Traits) (*Waiter, *world) {
	v, w := newWorld(), &Waiter{}
	if t.Turn == 0 {
		t.Turn = driver.TurnLength
	}
	w.Init(0, v, Settings{Timing: timing.Timing{TTL: ttl}, Poll: poll, WatchedPoll: watched}, t, n)
	return w, v
}

// What a wake-up reports, besides turns, which are not negative.
const (
	nothingMissed = -1 - time.Duration(iota) // since before the latest request
	maybeMissed
	wakingEnded
	stale // the lock became free before the latest request
)

func (w *Waiter) woken(now time.Duration, slot int, turn time.Duration) []Action {
	before := now - w.slots[slot].askedAt + 1
	switch turn {
	case nothingMissed:
		return w.Woken(now, slot, driver.Wakeup{Kind: driver.WakingBegan, Ago: before})
	case maybeMissed:
		return w.Woken(now, slot, driver.Wakeup{Kind: driver.WakingBegan})
	case wakingEnded:
		return w.Woken(now, slot, driver.Wakeup{Kind: driver.WakingEnded})
	case stale:
		return w.Woken(now, slot, driver.Wakeup{Ago: before})
	}
	return w.Woken(now, slot, driver.Wakeup{After: turn})
}

// holder is the record of a holder that has so much time left. Another time left is another renewal.
func holder(owner string, token uint64, left time.Duration) driver.Record {
	return driver.Record{Name: "job", State: driver.StateHeld, Owner: owner, Token: token, TTL: ttl,
		Remaining: left, RemainingKnown: true, Revision: driver.NewRevision(fmt.Sprint(owner, token, left))}
}

func refused(r driver.Record) Answer { return Answer{Outcome: Refused, Holder: &r} }

// text describes actions in short.
func text(actions []Action) string {
	var out []string
	for _, a := range actions {
		switch a.Kind {
		case Read:
			out = append(out, fmt.Sprint("read ", a.At))
		case DropRead:
			out = append(out, "drop read")
		case CleanUp:
			out = append(out, fmt.Sprint("clean up ", a.ID.Reveal(), " until ", a.At))
		case Report:
			out = append(out, fmt.Sprint("report ", a.Owner, " ", a.Token))
		}
	}
	return strings.Join(out, ", ")
}

// describe is text with the time of the next request.
func (w *Waiter) describe(actions []Action) string {
	_, at := w.Next()
	if at == Never {
		return strings.TrimSpace(text(actions) + " | never")
	}
	return strings.TrimSpace(fmt.Sprint(text(actions), " | ", at))
}
