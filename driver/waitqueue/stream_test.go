package waitqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const ms = time.Millisecond

// drive is a stream whose steps a test makes, with a backoff that is always the longest.
type drive struct {
	t *testing.T
	Stream[string]
	now time.Duration
}

func newDrive(t *testing.T) *drive {
	d := &drive{t: t}
	d.Init(Settings{Random: func(d time.Duration) time.Duration { return d - 1 }})
	return d
}

func (d *drive) at(now time.Duration) *drive { d.now = now; return d }

func (d *drive) next(want Step) time.Duration {
	d.t.Helper()
	got, until := d.Next(d.now)
	if got != want {
		d.t.Fatalf("at %v: step %d, want %d", d.now, got, want)
	}
	return until
}

func (d *drive) add(name string, want string) bool {
	d.t.Helper()
	calls, begin := d.Add(d.now, Key{name, "w"}, name)
	d.calls(calls, want)
	return begin
}

func (d *drive) remove(name string) { d.Remove(d.now, Key{name, "w"}, name) }

// calls compares calls, in short: the watch and what it gets.
func (d *drive) calls(calls []Call[string], want string) {
	d.t.Helper()
	var all []string
	for _, c := range calls {
		kind := []string{"free", "began", "ended"}[c.Up.Kind]
		all = append(all, fmt.Sprint(c.Watch, " ", kind, " ", c.Up.After, " ", c.Up.Ago))
	}
	slices.Sort(all)
	if got := fmt.Sprint(all); got != "["+want+"]" {
		d.t.Errorf("at %v: calls %s, want [%s]", d.now, got, want)
	}
}

// opened is a stream that is open since 1 s, with a watch.
func opened(t *testing.T) *drive {
	t.Helper()
	d := newDrive(t).at(time.Second)
	if !d.add("a", "") {
		t.Error("nobody begins")
	}
	d.next(Open)
	d.calls(d.Opened(d.now), "a began 0s 0s")
	d.next(Read)
	return d
}

// failedOnce is a stream that has failed for a minute, and whose watch has gone.
func failedOnce(t *testing.T) *drive {
	t.Helper()
	d := newDrive(t)
	d.add("a", "")
	d.next(Open)
	d.calls(d.Failed(d.now, time.Minute), "a ended 0s 0s")
	d.remove("a")
	return d
}

// The life of a stream: it lingers after its last watch, and the next one finds it open.
func TestStreamLife(t *testing.T) {
	d := opened(t)
	if d.at(3*time.Second).add("b", "b began 0s 1s") {
		t.Error("somebody drives it already")
	}
	d.calls(d.Event(d.now, Key{"a", "w"}, 0), "a free 0s 0s")
	d.calls(d.Event(d.now, Key{"b", "w"}, 200*ms), "b free 200ms 0s")
	d.calls(d.Event(d.now, Key{"b", "another"}, 0), "")
	d.at(4*time.Second).calls(d.Gap(d.now), "a began 0s 0s b began 0s 0s")
	if since, isOpen := d.Since(); since != 4*time.Second || !isOpen {
		t.Error(since, isOpen)
	}
	d.remove("a")
	d.remove("a")
	d.remove("b")
	d.at(9 * time.Second).next(Read)
	if d.add("c", "c began 0s 1s") {
		t.Error("somebody drives it already")
	}
	d.at(20 * time.Second).next(Read)
	d.remove("c")
	d.at(25*time.Second + 1).next(Close)
	if d.add("d", "") { // meanwhile
		t.Error("two streams")
	}
	d.calls(d.Event(d.now, Key{"d", "w"}, 0), "d free 0s 0s")
	d.calls(d.Gap(d.now), "")
	d.Closed()
	d.next(Open)
	d.calls(d.Opened(d.now), "d began 0s 0s")
	d.remove("d")
	d.at(40 * time.Second).next(Close)
	d.Closed()
	d.next(Done)
	if d.Driven() || !d.add("e", "") {
		t.Error("somebody drives it still")
	}
	d.next(Open)
}

// The backoff doubles with each failure, up to its limit, and begins again after a stream that was open for long.
func TestStreamBackoff(t *testing.T) {
	d := newDrive(t)
	d.add("a", "")
	for i := range 20 {
		d.next(Open)
		d.calls(d.Failed(d.now, 0), map[bool]string{true: "a ended 0s 0s"}[i == 0])
		if d.Usable() {
			t.Error("usable")
		}
		until := d.next(Rest)
		if want := min(FirstRetry<<i, LongestRetry); until-d.now > want || until-d.now < want-2 {
			t.Errorf("backoff %v after %d failures, want %v", until-d.now, i+1, want)
		}
		d.at(until - 1).next(Rest)
		d.at(until)
	}
	d.next(Open)
	d.calls(d.Opened(d.now), "a began 0s 0s")
	d.at(d.now+Stable).calls(d.Failed(d.now, 0), "")
	if until := d.next(Rest); until-d.now > FirstRetry || !d.Usable() {
		t.Errorf("backoff %v after a stream that was open for long", until-d.now)
	}
	d.add("b", "") // it is open again at once
	d.at(d.now + FirstRetry).next(Open)
	d.calls(d.Failed(d.now, 10*time.Minute), "a ended 0s 0s b ended 0s 0s")
	d.add("c", "c ended 0s 0s")
	if until := d.next(Rest); until-d.now < 10*time.Minute-2 {
		t.Errorf("backoff %v after a failure that lasts", until-d.now)
	}
}

// Streams that open and soon fail, again and again: the waiters are notified when the backoff is long.
func TestStreamThatFailsSoon(t *testing.T) {
	d := newDrive(t)
	d.add("a", "")
	for i := range 8 {
		d.next(Open)
		d.calls(d.Opened(d.now), "a began 0s 0s")
		d.next(Read)
		d.calls(d.Failed(d.now, 0), map[bool]string{true: "a ended 0s 0s"}[FirstRetry<<i > LongestBlind])
		d.at(d.next(Rest))
	}
}

// After the last watch a backoff still passes, so that frequent watches do not bypass it.
func TestStreamWithoutWatchesRests(t *testing.T) {
	d := failedOnce(t)
	until := d.next(Rest)
	if d.at(30*time.Second).add("b", "b ended 0s 0s") {
		t.Error("a watch bypasses the backoff")
	}
	d.remove("b")
	d.at(until).next(Done)
	if d.Usable() {
		t.Error("a request before the next watch would count as one that is woken")
	}
	if !d.add("c", "c ended 0s 0s") {
		t.Error("nobody begins")
	}
	d.next(Open)
	d.calls(d.Opened(d.now), "c began 0s 0s")
}

// A stream that nobody needs any more when it is opened is closed at once. A request that was sent before that counts as one that
// nothing wakes: its waiter hears that waking has ended, and begun again.
func TestStreamThatIsOpenedTooLate(t *testing.T) {
	d := failedOnce(t)
	d.at(d.next(Rest))
	d.add("b", "b ended 0s 0s")
	d.next(Open)
	d.remove("b")
	d.at(d.now + Linger + time.Second)
	d.calls(d.Opened(d.now), "")
	d.next(Close)
	d.add("c", "c ended 0s 0s")
	d.Closed()
	d.next(Open)
	d.calls(d.Opened(d.now), "c began 0s 0s")
}

// A wake-up that comes before the watch that it is for is kept for a moment.
func TestEarlyWakeUps(t *testing.T) {
	d := opened(t)
	d.calls(d.Event(d.now, Key{"b", "w"}, 200*ms), "")
	d.calls(d.Event(d.now, Key{"c", "w"}, 0), "")
	d.calls(d.Event(d.now, Key{"every", ""}, 0), "") // nobody's turn
	if len(d.early) != 2 {
		t.Errorf("%d are kept", len(d.early))
	}
	d.at(d.now+500*ms).add("b", "b began 0s 500ms b free 200ms 500ms")
	d.remove("b")
	d.add("b", "b began 0s 500ms b free 200ms 500ms") // again: the Waiter knows what its last request has answered
	d.at(d.now+501*ms).add("c", "c began 0s 1s")
	for i := range EarlyMost + 10 {
		d.Event(d.now, Key{fmt.Sprint("old ", i), "w"}, 0)
	}
	if len(d.early) != EarlyMost {
		t.Errorf("%d are kept", len(d.early))
	}
	d.at(d.now+100*ms).add("n", "n began 0s 100ms") // one that was not kept may have been for it
	d.at(d.now+EarlyLife+1).Event(d.now, Key{"new", "w"}, 0)
	if len(d.early) != 1 {
		t.Errorf("%d are kept", len(d.early))
	}
}

// A stream that is shut is closed, calls nobody, and is never opened again.
func TestStreamShut(t *testing.T) {
	for what, step := range map[string]func(d *drive){
		"open":    func(d *drive) { d.Shut(); d.next(Close); d.Closed() },
		"failed":  func(d *drive) { d.Shut(); d.calls(d.Failed(d.now, 0), "") },
		"resting": func(d *drive) { d.Failed(d.now, time.Hour); d.Shut() },
		"opening": func(d *drive) {
			d.Failed(d.now, 0)
			d.at(d.next(Rest)).next(Open)
			d.Shut()
			d.calls(d.Opened(d.now), "")
			d.next(Close)
			d.Closed()
		},
		"closing": func(d *drive) { d.remove("a"); d.at(time.Hour).next(Close); d.Shut(); d.Closed() },
	} {
		d := opened(t)
		step(d)
		d.next(Done)
		if d.add("b", "") {
			t.Errorf("%s: somebody begins", what)
		}
		d.calls(d.Event(d.now, Key{"a", "w"}, 0), "")
		d.next(Done)
	}
}

// checkedWatch is a watch as a random test sees it.
type checkedWatch struct {
	key   Key
	last  driver.WakeupKind // of those that say whether it is woken
	heard bool              // one of them
	freed time.Duration     // of the latest MayBeFree
	since time.Duration     // of the latest WakingBegan
}

// Whatever the order of events: there is one stream at a time, it is not opened before the backoff is over, no wake-up
// is lost while it is open, each waiter knows whether it is woken, and without watches it is closed.
func TestStreamRandom(t *testing.T) {
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 2))
		var s Stream[*checkedWatch]
		s.Init(Settings{Random: func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }})
		var now, notBefore time.Duration
		var watches []*checkedWatch
		var isOpen, isClosing, driven, shut bool
		failures, emptySince := 0, time.Duration(0)
		early := map[Key]time.Duration{}   // events that no watch has heard
		unheard := map[Key]time.Duration{} // the latest of them, also of those that are not kept
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d at %v: "+format, append([]any{seed, now}, args...)...)
		}
		perform := func(calls []Call[*checkedWatch]) {
			for _, c := range calls {
				if !slices.Contains(watches, c.Watch) {
					fail("a call of a watch that has ended")
				}
				if c.Up.Kind == driver.MayBeFree {
					c.Watch.freed = now - c.Up.Ago
					continue
				}
				c.Watch.last, c.Watch.heard = c.Up.Kind, true
				if c.Up.Kind == driver.WakingBegan {
					c.Watch.since = now - c.Up.Ago
				}
			}
		}
		for range 150 {
			now += time.Duration(random.Int64N(int64([]time.Duration{ms, 100 * ms, 3 * time.Second, 20 * time.Second}[random.IntN(4)])))
			switch random.IntN(9) {
			case 0, 1:
				if shut {
					break
				}
				w := &checkedWatch{key: Key{fmt.Sprint(random.IntN(3)), driver.WaiterID([]string{"", "w"}[random.IntN(2)])}, freed: -1}
				watches = append(watches, w)
				calls, begin := s.Add(now, w.key, w)
				perform(calls)
				if begin == driven {
					fail("begin is %v, and it is driven: %v", begin, driven)
				}
				driven = true
				if at, came := early[w.key]; came && now-at <= EarlyLife && w.freed != at {
					fail("a wake-up %v before the watch is lost", now-at)
				}
				if at, missed := unheard[w.key]; missed && isOpen && at > w.since && w.freed != at {
					fail("a watch is said to have been woken since %v, and has missed the event at %v", w.since, at)
				}
			case 2, 3:
				if len(watches) > 0 {
					i := random.IntN(len(watches))
					s.Remove(now, watches[i].key, watches[i])
					watches = slices.Delete(watches, i, i+1)
					if len(watches) == 0 {
						emptySince = now
					}
				}
			case 4:
				key := Key{fmt.Sprint(random.IntN(3)), driver.WaiterID([]string{"", "w"}[random.IntN(2)])}
				perform(s.Event(now, key, 0))
				found := false
				for _, w := range watches {
					if found = found || w.key == key; w.key == key && w.freed != now {
						fail("a wake-up is lost")
					}
				}
				if !found && !shut {
					unheard[key] = now
					if key.Waiter != "" {
						early[key] = now
					}
				}
			case 5:
				if isOpen {
					perform(s.Gap(now))
				}
			case 6:
				if seed%5 == 0 && random.IntN(30) == 0 {
					s.Shut()
					shut, watches = true, nil
					clear(early)
				}
			default:
				if !driven {
					break
				}
				do, until := s.Next(now)
				switch do {
				case Open:
					if isOpen || isClosing || shut {
						fail("a second stream")
					}
					if now < notBefore {
						fail("opened before the backoff is over, at %v", notBefore)
					}
					now += time.Duration(random.Int64N(int64(time.Second)))
					if random.IntN(2) == 0 {
						perform(s.Failed(now, 0))
						notBefore = now + min(FirstRetry<<min(failures, 16), LongestRetry)/2
						failures++
					} else {
						isOpen = true
						perform(s.Opened(now))
						emptySince = max(emptySince, 0)
					}
				case Read:
					if !isOpen {
						fail("nothing to read")
					}
					if random.IntN(4) == 0 {
						isOpen = false
						perform(s.Failed(now, 0))
						notBefore = now + FirstRetry/2
						failures = 0 // perhaps
					}
				case Close:
					if !isOpen && !isClosing {
						fail("nothing to close")
					}
					if !shut && !isClosing && (len(watches) > 0 || now-emptySince <= Linger) {
						fail("closed although it is needed")
					}
					isOpen, isClosing = false, true
					if random.IntN(2) == 0 {
						s.Closed()
						isClosing = false
					}
				case Rest:
					if until <= now || until-now > LongestRetry {
						fail("a backoff of %v", until-now)
					}
				case Done:
					if len(watches) > 0 || isOpen || isClosing {
						fail("nobody drives it although it is needed")
					}
					driven, failures = false, 0
				}
			}
			for _, w := range watches {
				switch {
				case isOpen && (!w.heard || w.last != driver.WakingBegan):
					fail("a waiter does not know that it is woken")
				case !s.Usable() && (!w.heard || w.last != driver.WakingEnded):
					fail("a waiter does not know that it is not woken")
				}
			}
		}
		for end := now + time.Hour; driven; now += time.Second { // without watches it ends
			for _, w := range watches {
				s.Remove(now, w.key, w)
			}
			watches = nil
			switch do, _ := s.Next(now); do {
			case Open:
				s.Opened(now)
			case Close:
				s.Closed()
			case Done:
				driven = false
			}
			if now > end {
				fail("it is open although nobody needs it")
			}
		}
	}
}
