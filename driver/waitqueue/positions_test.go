package waitqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// step is one event of a script about the name "n", at a time in milliseconds.
type step struct {
	at int
	do func(p *Positions[string], now time.Duration)
}

func begin(w string) func(*Positions[string], time.Duration) {
	return func(p *Positions[string], _ time.Duration) { p.Begin("n", w) }
}

func end(w string) func(*Positions[string], time.Duration) {
	return func(p *Positions[string], now time.Duration) { p.End(now, "n", w) }
}

func sent(p *Positions[string], _ time.Duration)    { p.Sent("n") }
func granted(p *Positions[string], _ time.Duration) { p.Granted("n") }
func failed(p *Positions[string], _ time.Duration)  { p.Failed("n") }

func refused(n int) func(*Positions[string], time.Duration) {
	return func(p *Positions[string], _ time.Duration) { p.Refused("n", n) }
}

// When the queue is left, for each way in which a wait can go. A call that leaves it takes a second. One that has failed is repeated once,
// unless somebody waits again by then.
func TestPositions(t *testing.T) {
	const call = time.Second
	for what, test := range map[string]struct {
		steps []step
		left  []int    // when calls begin, in milliseconds
		lost  []string // who has to ask again
	}{
		"nothing was sent": {[]step{{0, begin("a")}, {1, end("a")}}, nil, nil},
		"granted at once":  {[]step{{0, begin("a")}, {0, sent}, {1, granted}, {1, end("a")}}, nil, nil},
		"granted in the end": {[]step{{0, begin("a")}, {0, sent}, {1, refused(2)}, {5, sent}, {6, granted},
			{6, end("a")}}, nil, nil},
		"given up":                    {[]step{{0, begin("a")}, {0, sent}, {1, refused(2)}, {6, end("a")}}, []int{106}, nil},
		"given up without a position": {[]step{{0, begin("a")}, {0, sent}, {1, refused(0)}, {6, end("a")}}, nil, nil},
		"refused elsewhere, with a position left": {[]step{{0, begin("a")}, {0, sent}, {1, refused(2)}, {2, sent}, {3, refused(0)},
			{6, end("a")}}, []int{106}, nil},
		"certainly not sent": {[]step{{0, begin("a")}, {0, sent}, {1, failed}, {6, end("a")}}, nil, nil},
		"a later one was not sent": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {2, sent}, {3, failed},
			{6, end("a")}}, []int{106}, nil},
		"no answer": {[]step{{0, begin("a")}, {0, sent}, {6, end("a")}}, []int{106, 11106}, nil},
		"no answer, then a grant": {[]step{{0, begin("a")}, {0, sent}, {5, sent}, {6, granted}, {6, end("a")}},
			[]int{106, 11106}, nil},
		"no answer, then a refusal": {[]step{{0, begin("a")}, {0, sent}, {5, sent}, {6, refused(1)}, {6, end("a")}},
			[]int{106, 11106}, nil},
		"the next waiter follows": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {50, begin("b")},
			{900, end("b")}}, []int{1000}, nil},
		"the next waiter is granted": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {50, begin("b")},
			{50, sent}, {60, granted}, {60, end("b")}}, nil, nil},
		"another's grant is answered after a refusal": {[]step{{0, begin("a")}, {0, begin("b")}, {0, sent}, {0, sent}, {1, refused(1)},
			{2, granted}, {2, end("a")}, {6, end("b")}}, []int{106}, nil},
		"another's grant follows a refusal": {[]step{{0, begin("a")}, {0, begin("b")}, {0, sent}, {1, refused(1)}, {1, sent},
			{2, granted}, {2, end("a")}, {6, end("b")}}, nil, nil},
		"a grant, then a refusal beside it": {[]step{{0, begin("a")}, {0, begin("b")}, {0, sent}, {0, sent}, {1, granted},
			{1, end("a")}, {2, refused(1)}, {6, end("b")}}, []int{106}, nil},
		"two waiters": {[]step{{0, begin("a")}, {0, begin("b")}, {0, sent}, {1, refused(1)}, {6, end("a")},
			{500, end("b")}}, []int{600}, nil},
		"a waiter comes and goes during the call": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {200, begin("b")},
			{300, end("b")}}, []int{106}, nil},
		"a request crosses the call": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {200, begin("b")},
			{200, sent}, {300, refused(1)}, {2000, end("b")}}, []int{106, 2100}, []string{"b"}},
		"it crosses and is not granted": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {1000, begin("b")},
			{1000, sent}, {2000, end("b")}}, []int{106, 2100, 13100}, []string{"b"}},
		"a waiter comes during the call, and asks later": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {200, begin("b")},
			{1200, sent}, {1201, granted}, {1201, end("b")}}, []int{106}, nil},
		"one crosses the call and has gone when it ends": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {200, begin("b")},
			{200, sent}, {210, refused(1)}, {220, end("b")}}, []int{106, 1106}, nil},
		"failed, nobody waits": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}}, []int{106, 11106}, nil},
		"failed, and somebody waits again": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")}, {200, begin("b")},
			{29_000, sent}, {29_001, granted}, {29_001, end("b")}}, []int{106}, nil},
		// Somebody waits meanwhile, and gives up before a request: a position that the failed call may have left is left.
		"failed once, somebody came during the call": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")},
			{200, begin("b")}, {1200, end("b")}}, []int{106, 1300}, nil},
		"failed once, somebody came before it is repeated": {[]step{{0, begin("a")}, {0, sent}, {1, refused(1)}, {6, end("a")},
			{2000, begin("b")}, {2100, end("b")}}, []int{106, 2200}, nil},
		"a late request may arrive, and another waits": {[]step{{0, begin("a")}, {0, sent}, {6, end("a")}, {200, begin("b")}, {2000, sent},
			{2001, failed}, {3000, end("b")}}, []int{106, 3100, 14100}, nil},
	} {
		var p Positions[string]
		var left []int
		var lost, leaving []string
		var returns time.Duration
		for ms, next := 0, 0; ms < 30_000; ms++ {
			now := time.Duration(ms) * time.Millisecond
			for ; next < len(test.steps) && test.steps[next].at == ms; next++ {
				test.steps[next].do(&p, now)
			}
			if leaving != nil && now >= returns {
				fails := strings.HasPrefix(what, "failed,") || strings.HasPrefix(what, "failed once,") && len(left) == 1
				lost, leaving = append(lost, p.Left(now, leaving, fails, false)...), nil
			}
			if leaving == nil {
				names, due := p.Due(now, false)
				if len(names) > 0 {
					left, leaving, returns = append(left, ms), names, now+call
				} else if due <= now {
					t.Fatalf("%s: at %v something is due at %v", what, now, due)
				}
			}
		}
		if !slices.Equal(left, test.left) || !slices.Equal(lost, test.lost) {
			t.Errorf("%s: left at %v, want %v; %v lost their position, want %v", what, left, test.left, lost, test.lost)
		}
		if len(p.names) > 0 || !p.Idle() {
			t.Errorf("%s: %d names are remembered, idle: %v", what, len(p.names), p.Idle())
		}
	}
}

// A process that is ending keeps no position for the next caller, and leaves no queue twice. A request that is on the
// way arrives first.
func TestPositionsAtTheEnd(t *testing.T) {
	var p Positions[string]
	for i := range LeaveNames + 20 {
		name := fmt.Sprint(i)
		p.Begin(name, "a")
		p.Sent(name)
		if i >= 10 {
			p.Refused(name, 1)
		}
		p.End(0, name, "a")
	}
	for _, want := range []struct {
		at    time.Duration
		names int
		next  time.Duration
	}{{0, LeaveNames, LeaveDelay}, {0, 10, LeaveDelay}, {LeaveDelay - 1, 0, LeaveDelay}, {LeaveDelay, 10, Never}, {time.Hour, 0, Never}} {
		names, next := p.Due(want.at, true)
		if len(names) != want.names || len(names) < LeaveNames && next != want.next {
			t.Errorf("at %v: %d names are left with one call, want %d; the next at %v, want %v", want.at, len(names), want.names, next, want.next)
		}
		p.Left(want.at, names, false, true)
	}
	begin("a")(&p, 0)
	sent(&p, 0)
	refused(1)(&p, 0)
	end("a")(&p, 0)
	names, _ := p.Due(LeaveDelay, true)
	p.Left(LeaveDelay, names, true, true) // a call that fails is not repeated
	if again, _ := p.Due(time.Hour, true); len(names) != 1 || len(again) > 0 || !p.Idle() || len(p.names) > 0 {
		t.Errorf("after %v and %v something is left to do", names, again)
	}
}

// server is a queue as a backend has it, and the requests on the way to it.
type server struct {
	in bool
	on []func() // requests that arrive later
}

// Whatever the order of events, each position is left in the end, and a waiter whose request has crossed the call that
// leaves the queue asks again: it never waits for long without a position that it counts on.
func TestPositionsRandom(t *testing.T) {
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var p Positions[int]
		var s server
		var now time.Duration
		var waiters, leaving = map[int]bool{}, []string(nil)
		var arrives bool // the call that leaves has been applied
		believes, ids := false, 0
		ask := func() {
			p.Sent("n")
			switch random.IntN(5) {
			case 0: // granted
				s.in = false
				p.Granted("n")
				believes = false
				for w := range waiters {
					delete(waiters, w)
					p.End(now, "n", w)
					break
				}
			case 1: // the outcome is unknown, and it arrives later
				s.on = append(s.on, func() { s.in = true })
			case 2: // it is unknown, and it never arrives
			case 3:
				p.Failed("n")
			default:
				s.in = true
				believes = true
				p.Refused("n", 1)
			}
		}
		for range 60 {
			now += time.Duration(random.IntN(60)) * time.Millisecond
			switch random.IntN(6) {
			case 0:
				ids++
				waiters[ids] = true
				p.Begin("n", ids)
			case 1:
				for w := range waiters {
					delete(waiters, w)
					p.End(now, "n", w)
					break
				}
			case 2:
				if len(waiters) > 0 {
					ask()
				}
			case 3:
				if len(s.on) > 0 {
					s.on[0]()
					s.on = s.on[1:]
				}
			case 4:
				if leaving == nil {
					leaving, _ = p.Due(now, false)
					arrives = false
				} else if !arrives {
					s.in, arrives = false, true
				}
			case 5:
				if failed := leaving != nil && random.IntN(4) == 0; leaving != nil && (arrives || failed) {
					lost := p.Left(now, leaving, failed, false)
					leaving = nil
					if believes && !s.in && len(waiters) > 0 && len(lost) == 0 && len(s.on) == 0 {
						t.Fatalf("seed %d: a waiter has lost its position, and does not ask again", seed)
					}
					believes = believes && s.in
				}
			}
			if len(waiters) == 0 {
				believes = false
			}
		}
		for w := range waiters {
			p.End(now, "n", w)
		}
		for _, arrive := range s.on { // at the latest now
			arrive()
		}
		for range 10 {
			if leaving == nil {
				now += 2 * LeaveAgain
				leaving, _ = p.Due(now, false)
			}
			if leaving != nil {
				s.in = false
				p.Left(now, leaving, false, false)
				leaving = nil
			}
		}
		if s.in || !p.Idle() || len(p.names) > 0 {
			t.Fatalf("seed %d: in the queue: %v, idle: %v, %d names", seed, s.in, p.Idle(), len(p.names))
		}
	}
}
