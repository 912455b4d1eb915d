package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The backends.
const (
	Mongo = "mongodb"
	Azure = "azblob"
)

// Plan is one schedule. It can be encoded as JSON, and shortened: any of its processes, programs
// and faults can be left out.
type Plan struct {
	Seed      uint64        `json:"seed"`
	Duration  time.Duration `json:"duration"`
	Heal      time.Duration `json:"heal"` // from here on there are no faults
	Backend   string        `json:"backend"`
	Members   []Clock       `json:"members"`            // of the replica set; the first is the primary
	Latency   time.Duration `json:"latency"`            // of the network, about
	Noise     float64       `json:"noise"`              // the chance that a request meets a fault
	WakesAll  bool          `json:"wakesAll,omitempty"` // a release wakes those without a position, too, as with Redis
	Processes []Process     `json:"processes"`
	Faults    []Fault       `json:"faults"`
}

// Clock is a clock that runs at its own rate.
type Clock struct {
	Drift  float64       `json:"drift"` // how much faster than real time
	Offset time.Duration `json:"offset"`
}

// Process is one process. It is started again after a crash or a shutdown.
type Process struct {
	TTL   time.Duration `json:"ttl"`
	Drift float64       `json:"drift"` // of its clock of elapsed time
	Start time.Duration `json:"start"`
	Poll  time.Duration `json:"poll,omitempty"`
	Wake  string        `json:"wake"` // how it learns of a release
	Does  []Actor       `json:"does"`
}

// The ways in which a process learns of a release.
const (
	Hints = "hints" // a queue for the waiters of a lock
	Polls = "poll"
)

// Kinds of actors.
const (
	Locks  = "locks"      // Do, Lock, TryLock
	Leads  = "leads"      // LeaderAwareRunner.Run
	Ticks  = "ticks"      // LeaderAwareRunner.RunTaskOnLeader
	Leases = "leases"     // LeaseManager
	Shares = "partitions" // Partitions
	Reads  = "readers"    // Do, Lock, TryLock, mostly with WithShared: all but one of N
	Many   = "several"    // DoAll, LockAll, TryLockAll of some of N names
)

// Actor is a program of a process.
type Actor struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	N       int           `json:"n,omitempty"` // slots, names or partitions
	MaxHold time.Duration `json:"maxHold,omitempty"`
	MaxIdle time.Duration `json:"maxIdle,omitempty"`
	Burst   int           `json:"burst,omitempty"` // holds of a moment after each idle time, instead of one
}

// Kinds of faults.
const (
	Cut       = "cut"       // a process cannot reach the backend
	Slow      = "slow"      // requests and replies take up to Amount longer
	Lossy     = "lossy"     // requests and replies are lost, late or doubled with a Chance
	Crash     = "crash"     // a process ends and is started again
	Pause     = "pause"     // a process stands still, and its clock with it
	Stop      = "stop"      // a process shuts down and is started again
	Deaf      = "deaf"      // the process loses wake-ups; with an Amount, some come twice, or up to so much later
	Babble    = "babble"    // the process is woken without reason
	FailOver  = "fail-over" // the primary is replaced after a time; unreplicated writes are rolled back
	Lag       = "lag"       // writes reach a majority up to Amount later
	StepClock = "step clock"
	Break     = "break"
	BreakNow  = "break now"
	Delete    = "delete" // an operator deletes a record
)

// Fault is one fault.
type Fault struct {
	Kind    string        `json:"kind"`
	At      time.Duration `json:"at"`
	For     time.Duration `json:"for,omitempty"`
	Process int           `json:"process,omitempty"` // counted from 0
	Name    string        `json:"name,omitempty"`
	Amount  time.Duration `json:"amount,omitempty"`
	Chance  float64       `json:"chance,omitempty"`
	Refuses bool          `json:"refuses,omitempty"` // requests fail at once, instead of hanging
}

// OfProcess reports whether the fault concerns one process.
func (f Fault) OfProcess() bool {
	switch f.Kind {
	case FailOver, Lag, StepClock, Break, BreakNow, Delete:
		return false
	}
	return true
}

func (f Fault) String() string {
	s := fmt.Sprintf("%v at %v", f.Kind, f.At)
	switch f.Kind {
	case FailOver, Lag, StepClock:
	case Break, BreakNow, Delete:
		s += fmt.Sprintf(" of %q", f.Name)
	default:
		s += fmt.Sprintf(" of process %d", f.Process+1)
	}
	if f.For > 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	if f.Amount != 0 {
		s += fmt.Sprintf(" by %v", f.Amount)
	}
	if f.Refuses {
		s += ", requests are refused"
	}
	if f.Chance > 0 {
		s += fmt.Sprintf(" with a chance of %.2f", f.Chance)
	}
	return s
}

// judged is for how long progress is judged after the recovery from the last fault.
const judged = 100 * time.Second

// maxDrift is how much faster or slower a clock may run.
const maxDrift = 0.0004

// dice draws what a plan or an actor needs.
type dice struct{ *rand.Rand }

func newDice(seed uint64, stream ...uint64) dice {
	mixed := uint64(0x9e3779b97f4a7c15)
	for _, s := range stream {
		mixed = (mixed ^ s) * 0xbf58476d1ce4e5b9
	}
	return dice{rand.New(rand.NewPCG(seed, mixed))}
}

func (d dice) chance(p float64) bool { return p > 0 && d.Float64() < p }

// upTo returns a duration from 1 ns to most.
func (d dice) upTo(most time.Duration) time.Duration {
	return 1 + time.Duration(d.Int64N(int64(max(most, 1))))
}

// between returns a whole number of milliseconds.
func (d dice) between(least, most time.Duration) time.Duration {
	return (least + d.upTo(most-least)).Round(time.Millisecond)
}

func (d dice) drift() float64 { return (2*d.Float64() - 1) * maxDrift }

func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// Draw draws the plan of a seed.
func Draw(seed uint64) Plan {
	d := newDice(seed, 1)
	p := Plan{Seed: seed, Duration: 10 * time.Minute, Heal: 6 * time.Minute, Backend: Mongo, Latency: pick(d, time.Millisecond,
		5*time.Millisecond, 30*time.Millisecond)}
	if d.chance(0.3) {
		p.Backend = Azure
	}
	if d.chance(0.4) {
		p.Noise = pick(d, 0.002, 0.01, 0.05)
	}
	ttls := []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second, 30 * time.Second, time.Minute}
	if p.Backend == Azure {
		ttls = ttls[1:]
	}
	ttl, mixed := pick(d, ttls...), d.chance(0.2)
	does := drawActors(d)
	count := 2 + d.IntN(3)
	if d.chance(0.1) {
		count = 6 // a longer queue
	}
	long := p.Backend == Mongo && d.chance(0.007) // of one plan in 200: a release wakes one waiter of so many
	if long {
		count, does = driver.LongQueue+4, []Actor{{Kind: Locks, Name: "a", N: 1, MaxHold: 2 * time.Second, MaxIdle: 2 * time.Second}}
	}
	for range count {
		pr := Process{TTL: ttl, Drift: d.drift(), Start: d.between(0, 5*time.Second), Wake: Hints}
		if p.Backend == Azure || !long && d.chance(0.1) {
			pr.Wake = Polls
		}
		if mixed {
			pr.TTL = pick(d, ttls...)
		}
		if p.Backend == Mongo && pr.Wake == Polls && !d.chance(0.2) {
			pr.Poll = 4 * time.Second
		}
		for _, a := range does {
			if long || !d.chance(0.1) {
				pr.Does = append(pr.Does, a)
			}
		}
		p.Processes = append(p.Processes, pr)
	}
	p.Duration = min(p.Duration, p.Heal+p.recovery()+judged)
	p.drawClocks(d)
	p.drawFaults(d)
	p.WakesAll = newDice(seed, 9).chance(0.5)
	if !long {
		p.drawModes(newDice(seed, 7))
		p.drawDenials(newDice(seed, 8))
	}
	return p
}

// drawModes adds programs that read and write under one lock, or take several locks at once. They have dice of their own, so
// that the rest of the plan is as it was before there were such programs.
func (p *Plan) drawModes(d dice) {
	a := Actor{Kind: Reads, Name: "cache", N: 2 + d.IntN(4), MaxIdle: pick(d, 4*time.Second, 20*time.Second)}
	if several := d.chance(0.4); several || p.Backend != Mongo {
		a.Kind, a.Name, a.N = Many, "account", 3+d.IntN(3)
	}
	if a.MaxHold = pick(d, 200*time.Millisecond, 2*time.Second); !d.chance(0.25) {
		return
	}
	for i := range p.Processes {
		pr := &p.Processes[i]
		pr.Does = slices.Clip(pr.Does)
		for range 1 + d.IntN(2) {
			pr.Does = append(pr.Does, a)
		}
	}
	for range d.IntN(3) {
		f := Fault{Kind: pick(d, Break, BreakNow), At: d.between(10*time.Second, p.Heal-30*time.Second), Name: a.Name}
		if a.Kind == Many {
			f.Name = leaseName(a.Name, d.IntN(a.N))
		}
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// drawActors chooses what the processes do: locks, and often something else.
func drawActors(d dice) []Actor {
	hold := pick(d, 4*time.Second, 20*time.Second, 90*time.Second)
	lock := Actor{Kind: Locks, Name: "a", N: 1, MaxHold: hold, MaxIdle: pick(d, 10*time.Second, 40*time.Second, 90*time.Second)}
	second := lock
	second.MaxHold = pick(d, time.Second, 20*time.Second)
	if d.chance(0.4) { // the waiters of one process hand the lock over
		second.MaxHold, second.MaxIdle, second.Burst = 20*time.Millisecond, 3*time.Minute, 4
		lock = second
	}
	other := lock
	other.Name, other.MaxHold = "b", pick(d, 2*time.Second, 2*time.Minute)
	all := []Actor{lock}
	if d.chance(0.2) { // a queue
		lock.MaxHold, lock.MaxIdle, lock.Burst = 4*time.Second, time.Minute, 0
		all = []Actor{lock, lock, lock, lock}
	}
	for _, a := range []Actor{second, other} {
		if a.Burst > 0 || d.chance(0.4) {
			all = append(all, a)
		}
	}
	switch d.IntN(6) {
	case 0:
		pool := Actor{Kind: Locks, Name: "pool", N: 2 + d.IntN(2), MaxHold: 30 * time.Second, MaxIdle: 40 * time.Second}
		all = append(all, pool, pool)
	case 1:
		all = append(all, Actor{Kind: Leads, Name: "leader", N: 1, MaxHold: pick(d, 20*time.Second, 3*time.Minute)})
	case 2:
		all = append(all, Actor{Kind: Ticks, Name: "leader", N: 1, MaxHold: 5 * time.Second, MaxIdle: 30 * time.Second})
	case 3:
		all = append(all[:1], Actor{Kind: Leases, Name: "lease", N: 1 + d.IntN(5)})
	case 4:
		all = append(all[:1], Actor{Kind: Shares, Name: "group", N: 2 + d.IntN(5)})
	}
	return all
}

func (p *Plan) minGrace() time.Duration {
	least := time.Minute
	for _, pr := range p.Processes {
		least = min(least, pr.TTL/6)
	}
	return least
}

func (p *Plan) maxTTL() time.Duration {
	var most time.Duration
	for _, pr := range p.Processes {
		most = max(most, pr.TTL)
	}
	return most
}

// drawClocks gives the servers clocks that agree within the grace, or exactly.
func (p *Plan) drawClocks(d dice) {
	p.Members = make([]Clock, 3)
	if p.Backend == Azure {
		p.Members = p.Members[:1]
	}
	if d.chance(0.5) {
		return
	}
	for i := range p.Members {
		p.Members[i] = Clock{d.drift(), time.Duration((2*d.Float64() - 1) * 0.3 * float64(p.minGrace()))}
	}
}

// tokensMayRunAhead reports whether the server's clock may be behind a token.
func (p *Plan) tokensMayRunAhead() bool {
	return slices.ContainsFunc(p.Members, func(c Clock) bool { return c != Clock{} }) ||
		slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == StepClock })
}

func (p *Plan) drawFaults(d dice) {
	kinds := []string{Cut, Cut, Slow, Lossy, Lossy, Crash, Crash, Pause, Pause, Stop, Break, BreakNow}
	if p.Backend == Mongo {
		kinds = append(kinds, FailOver, FailOver, FailOver, Lag, Deaf, Babble)
		if d.chance(0.3) {
			kinds = append(kinds, StepClock, StepClock)
		}
	}
	names := []string{"a"}
	for _, pr := range p.Processes {
		for _, a := range pr.Does {
			switch a.Kind {
			case Locks, Leads, Ticks:
				names = append(names, a.Name)
			case Leases:
				names = append(names, leaseName(a.Name, d.IntN(a.N)))
			case Shares:
				names = append(names, partitionName(a.Name, d.IntN(a.N)))
			}
		}
	}
	for range d.IntN(13) {
		f := Fault{Kind: pick(d, kinds...), At: d.between(10*time.Second, p.Heal-30*time.Second)}
		f.For = min(d.between(100*time.Millisecond, pick(d, 2*time.Second, 20*time.Second, 90*time.Second)), p.Heal-f.At)
		switch f.Kind {
		case Cut:
			f.Process, f.Refuses = d.IntN(len(p.Processes)), d.chance(0.3)
		case Deaf:
			f.Process = d.IntN(len(p.Processes))
			if d.chance(0.5) {
				f.Amount = d.between(10*time.Millisecond, pick(d, time.Second, 20*time.Second))
			}
		case Crash, Stop:
			f.Process = d.IntN(len(p.Processes))
		case Pause:
			f.Process = d.IntN(len(p.Processes))
		case Babble:
			f.Process, f.For = d.IntN(len(p.Processes)), min(f.For, 5*time.Second)
		case Slow:
			f.Process, f.Amount = d.IntN(len(p.Processes)), d.between(10*time.Millisecond, 3*time.Second)
		case Lossy:
			f.Process, f.Chance = d.IntN(len(p.Processes)), 0.1+0.6*d.Float64()
		case FailOver:
			f.Refuses = d.chance(0.3)
			f.For = min(d.between(500*time.Millisecond, pick(d, 3*time.Second, 14*time.Second)), p.Heal-f.At)
		case Lag:
			f.Amount = d.between(10*time.Millisecond, 5*time.Second)
		case StepClock:
			f.For = 0
			f.Amount = -d.between(time.Second, 3*time.Hour)
			if d.chance(0.3) {
				f.Amount = d.between(100*time.Millisecond, pick(d, p.minGrace()/4, time.Minute))
			}
		case Break, BreakNow:
			f.For, f.Name = 0, pick(d, names...)
		}
		p.Faults = append(p.Faults, f)
	}
	if !p.tokensMayRunAhead() && d.chance(0.3) {
		p.Faults = append(p.Faults, Fault{Kind: Delete, At: d.between(10*time.Second, p.Heal), Name: pick(d, names...)})
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

func leaseName(prefix string, i int) string    { return fmt.Sprintf("%s-%d", prefix, i) }
func partitionName(group string, i int) string { return fmt.Sprintf("%s/partition-%04d", group, i) }
