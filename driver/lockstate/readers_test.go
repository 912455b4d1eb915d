package lockstate_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

func shared(owner string, ttl time.Duration) driver.Request {
	req := request(owner, ttl)
	req.Mode = driver.Shared
	return req
}

// readBy is a lock with readers that were granted it at 0 s, each for 10 s.
func readBy(t *testing.T, readers ...string) *lockstate.Lock {
	t.Helper()
	k := new(lockstate.Lock)
	for _, holder := range readers {
		if !k.Acquire(shared(holder, 10*time.Second), holder, at(0)) {
			t.Fatalf("%s was refused", holder)
		}
	}
	return k
}

// holders writes the holders of a record as "owner token left", with a ! if the holder is broken.
func holders(r driver.Record) string {
	all := []string{r.State.String()}
	for _, h := range r.Holders {
		all = append(all, fmt.Sprintf("%s %d %v%s", h.Owner, h.Token, h.Remaining, strings.Repeat("!", map[bool]int{true: 1}[h.Broken])))
	}
	return strings.Join(all, ", ")
}

// both is a step after another, which must have an effect.
func both(one, two step) step { return func(k *lockstate.Lock) bool { return one(k) && two(k) } }

// Readers share the lock, a writer excludes them, and each lease ends by itself. The mode of a lease never changes: two readers that both
// wait to become the writer would wait for each other.
func TestReaders(t *testing.T) {
	const ttl = 10 * time.Second
	for name, c := range map[string]struct { // a has token 1000, b 1001
		do      step
		want    bool
		at      int
		holders string
		history string
	}{
		"another reader":                {acquire(shared("c", ttl), 4), true, 4, "held, a 1000 6s, b 1001 6s, c 5000 10s", ""},
		"another after expiry":          {acquire(shared("c", ttl), 10), true, 10, "held, c 11000 10s", "b expired @10, a expired @10"},
		"a repeat":                      {acquire(shared("a", ttl), 4), true, 4, "held, a 1000 10s, b 1001 6s", ""},
		"a repeat after expiry":         {acquire(shared("a", ttl), 12), true, 12, "held, a 13000 10s", "b expired @10, a expired @10"},
		"a writer":                      {acquire(request("c", ttl), 9), false, 9, "held, a 1000 1s, b 1001 1s", ""},
		"a writer after expiry":         {acquire(request("c", ttl), 10), true, 10, "held", "b expired @10, a expired @10"},
		"an upgrade":                    {acquire(request("a", ttl), 4), false, 4, "held, a 1000 6s, b 1001 6s", ""},
		"an upgrade of the only reader": {both(release("b", 1), acquire(request("a", ttl), 4)), false, 4, "held, a 1000 6s", "b released @1"},
		"a renewal":                     {renew("a", ttl, 4), true, 4, "held, a 1000 10s, b 1001 6s", ""},
		"a renewal after expiry":        {renew("a", ttl, 12), true, 12, "held, a 1000 10s", ""},
		"a renewal by nobody":           {renew("c", ttl, 4), false, 4, "held, a 1000 6s, b 1001 6s", ""},
		"a renewal by all":              {renew(lockstate.Shared, ttl, 4), false, 4, "held, a 1000 6s, b 1001 6s", ""},
		"a release":                     {release("a", 4), true, 4, "held, b 1001 6s", "a released @4"},
		"a release of the last":         {both(release("b", 3), release("a", 4)), true, 5, "free", "b released @3, a released @4"},
		"a release by another":          {release("c", 4), false, 4, "held, a 1000 6s, b 1001 6s", ""},
		"a release of all":              {release(lockstate.Shared, 4), false, 4, "held, a 1000 6s, b 1001 6s", ""},
		"expiry":                        {renew("b", ttl, 4), true, 11, "held, b 1001 3s", ""},
		"expiry of all":                 {renew("b", ttl, 4), true, 15, "free", "b expired @14, a expired @10"},
		"a writer that replaces":        {replace(request("c", ttl), 2), true, 2, "held", "b taken over @2, a taken over @2"},
		"a broken reader":               {breaks(1000), true, 2, "held, a 1000 8s!, b 1001 8s", ""},
		"a broken reader expires":       {breaks(1000), true, 12, "free", "b expired @10, a broken @10"},
		"a broken reader's release":     {both(breaks(1000), release("a", 3)), true, 3, "held, b 1001 7s", "a broken @3"},
		"a broken reader's renewal":     {both(breaks(1000), renew("a", ttl, 3)), false, 3, "held, a 1000 7s!, b 1001 7s", ""},
		"a broken reader's repeat":      {both(breaks(1000), acquire(shared("a", ttl), 3)), false, 3, "held, a 1000 7s!, b 1001 7s", ""},
		"the renewal of another":        {both(breaks(1000), renew("b", ttl, 3)), true, 3, "held, a 1000 7s!, b 1001 10s", ""},
		"broken twice":                  {both(breaks(1000), breaks(1000)), false, 3, "held, a 1000 7s!, b 1001 7s", ""},
		"all broken":                    {breaks(), true, 2, "held, a 1000 8s!, b 1001 8s!", ""},
		"nobody broken":                 {breaks(999), false, 2, "held, a 1000 8s, b 1001 8s", ""},
		"one freed":                     {breakNow(2, 1001), true, 2, "held, a 1000 8s", "b freed @2"},
		"all freed":                     {breakNow(2), true, 2, "free", "b freed @2, a freed @2"},
		"all freed by their tokens":     {breakNow(2, 1000, 1001), true, 2, "free", "b freed @2, a freed @2"},
		"nobody freed":                  {breakNow(2, 999), false, 2, "held, a 1000 8s, b 1001 8s", ""},
		"ended by the store":            {endedByTheStore(driver.EndUnknown), true, 2, "free", "b unknown, a unknown"},
		"a writer after the release":    {both(breakNow(1), acquire(request("c", ttl), 2)), true, 2, "held", "b freed @1, a freed @1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := readBy(t, "a", "b")
			if got := c.do(k); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			r := k.Record("n", at(c.at))
			if got := holders(r); got != c.holders {
				t.Errorf("the record has %q, want %q", got, c.holders)
			}
			if got := ends(k.PastHolders(driver.MaxHistory, at(c.at))); got != c.history {
				t.Errorf("the history is %q, want %q", got, c.history)
			}
			if broken := !strings.Contains(strings.ReplaceAll(c.holders, "s!", ""), "s,") && strings.HasSuffix(c.holders, "!"); r.Broken != broken {
				t.Errorf("the lock is broken: %v, want %v", r.Broken, broken)
			}
			if (k.Holder == "") != (len(k.Readers) == 0 && r.State == driver.StateFree) && len(k.Readers) == 0 {
				t.Errorf("the holder of a lock with the record %q is %q", c.holders, k.Holder)
			}
		})
	}
}

// Readers never write the data, and leave those of the writer before.
func TestReadersLeaveTheData(t *testing.T) {
	k := heldByA(t)
	k.Release("a", at(1))
	k.Acquire(shared("b", time.Minute), "b", at(2))
	if err := k.Write("b", []byte("b's"), k.DataRevision(), at(3)); !errors.Is(err, driver.ErrLost) || string(k.Data) != "a's" {
		t.Errorf("a reader's write: %v, the data are %q", err, k.Data)
	}
}

// A shared lock has MaxHolders holders at most. Those whose leases have expired do not count.
func TestFullOfReaders(t *testing.T) {
	var k lockstate.Lock
	for i := range driver.MaxHolders {
		if holder := fmt.Sprint(i); !k.Acquire(shared(holder, time.Duration(10+i)*time.Second), holder, at(0)) {
			t.Fatalf("reader %d was refused", i)
		}
	}
	if k.Acquire(shared("late", time.Minute), "late", at(9)) || !k.Acquire(shared("5", time.Minute), "5", at(9)) {
		t.Error("one reader too many, or the repeat of one was refused")
	}
	if !k.Acquire(shared("late", time.Minute), "late", at(11)) || len(k.Readers) != driver.MaxHolders-1 {
		t.Errorf("%d readers after one joined when two leases had expired", len(k.Readers))
	}
}

// Targets and CheckTarget name the holders that a break affects, also one whose lease has expired.
func TestBreakTargets(t *testing.T) {
	k := readBy(t, "a", "b")
	k.Renew("b", 10*time.Second, at(5))
	for _, c := range []struct {
		target  driver.BreakTarget
		at      int
		affects bool
		held    bool
		tokens  []uint64
	}{
		{driver.BreakAnybody(), 1, true, false, []uint64{1000, 1001}},
		{driver.BreakToken(1000), 1, true, false, []uint64{1000}},
		{driver.BreakToken(1000), 12, true, false, []uint64{1000}},
		{driver.BreakToken(1000), 16, true, false, []uint64{1000}},
		{driver.BreakToken(999), 1, false, true, []uint64{999}},
		{driver.BreakToken(999), 16, false, false, []uint64{999}},
	} {
		affects, err := k.CheckTarget("n", c.target, at(c.at))
		if affects != c.affects || errors.Is(err, driver.ErrHeld) != c.held || !slices.Equal(k.Targets(c.target), c.tokens) {
			t.Errorf("%v at %d s: %v, %v, tokens %v", c.target, c.at, affects, err, k.Targets(c.target))
		}
	}
	k.Release("b", at(6))
	if _, err := k.CheckTarget("n", driver.BreakToken(1001), at(7)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a reader that has released, while another holds the lock: %v", err)
	}
	if got := heldByA(t).Targets(driver.BreakAnybody()); !slices.Equal(got, []uint64{1000}) {
		t.Errorf("the targets of an exclusive lock are %v", got)
	}
}

// model is a lock with readers as a person would describe it: who holds it in which mode, and until when.
type model struct {
	now   time.Duration
	token uint64
	all   map[string]modelLease
}

type modelLease struct {
	mode   driver.Mode
	until  time.Duration
	token  uint64
	broken bool
}

// live lists the holders whose leases have not expired.
func (m *model) live() map[string]modelLease {
	live := maps.Clone(m.all)
	maps.DeleteFunc(live, func(_ string, l modelLease) bool { return l.until <= m.now })
	return live
}

// acquire reports whether the request is granted, and with which token, 0 for a new one.
func (m *model) acquire(id string, mode driver.Mode) (granted bool, token uint64) {
	live := m.live()
	if own, ok := live[id]; ok {
		return own.mode == mode && !own.broken, own.token
	}
	for _, other := range live {
		if other.mode == driver.Exclusive || mode == driver.Exclusive {
			return false, 0
		}
	}
	m.all = live
	return true, 0
}

// Random requests have the effects that the model predicts: who holds the lock in which mode, with which token and
// until when.
func TestReadersAsTheModelSays(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 27))
		k, m := new(lockstate.Lock), model{all: map[string]modelLease{}}
		for step := range 150 {
			now := lockstate.Moment{Elapsed: m.now, Wall: start.Add(m.now)}
			id, ttl := string('a'+rune(r.IntN(6))), time.Duration(1+r.IntN(9))*time.Second
			own, is := m.all[id]
			what := fmt.Sprintf("seed %d, step %d, by %s", seed, step, id)
			switch r.IntN(6) {
			case 0, 1, 2:
				mode := driver.Mode(min(r.IntN(4), 1)) // readers are more frequent
				req := request(id, ttl)
				req.Mode = mode
				granted, token := m.acquire(id, mode)
				if got := k.Acquire(req, id, now); got != granted {
					t.Fatalf("%s: %v granted %v, want %v by %+v", what, mode, got, granted, m)
				}
				if !granted {
					break
				}
				if token == 0 {
					if own = (modelLease{mode: mode, token: k.Token}); k.Token <= m.token {
						t.Fatalf("%s: token %d after %d", what, k.Token, m.token)
					}
					m.token = k.Token
				}
				own.until = max(own.until, m.now+ttl)
				m.all[id] = own
			case 3:
				if got, want := k.Renew(id, ttl, now), is && !own.broken; got != want {
					t.Fatalf("%s: renewed %v, want %v", what, got, want)
				} else if got {
					own.until = max(own.until, m.now+ttl)
					m.all[id] = own
				}
			case 4:
				if got := k.Release(id, now); got != is {
					t.Fatalf("%s: released %v, want %v", what, got, is)
				}
				if delete(m.all, id); is && len(m.live()) == 0 { // it is free, and readers whose leases have expired have ended, too
					clear(m.all)
				}
			case 5:
				switch r.IntN(4) {
				case 0:
					if k.Break(own.token); is {
						own.broken = true
						m.all[id] = own
					}
				case 1:
					k.BreakNow(now, k.Targets(driver.BreakAnybody())...)
					clear(m.all)
				default:
					m.now += time.Duration(r.IntN(4)) * time.Second
				}
			}
			m.compare(t, what, k)
		}
	}
}

// compare checks that the record shows the holders of the model, and the history no present one.
func (m *model) compare(t *testing.T, what string, k *lockstate.Lock) {
	t.Helper()
	now := lockstate.Moment{Elapsed: m.now, Wall: start.Add(m.now)}
	rec, live := k.Record("n", now), m.live()
	if (rec.State == driver.StateHeld) != (len(live) > 0) || k.Token != m.token {
		t.Fatalf("%s: %v with token %d, want the holders %+v and token %d", what, rec.State, k.Token, live, m.token)
	}
	for id, l := range live {
		if l.mode == driver.Exclusive {
			if rec.Owner != id || rec.Remaining != l.until-m.now || rec.Broken != l.broken || len(rec.Holders) > 0 {
				t.Fatalf("%s: %+v, want %+v", what, rec, l)
			}
			continue
		}
		i := slices.IndexFunc(rec.Holders, func(h driver.Holder) bool { return h.Owner == id })
		if i < 0 || rec.Holders[i].Token != l.token || rec.Holders[i].Remaining != l.until-m.now || rec.Holders[i].Broken != l.broken ||
			len(rec.Holders) != len(live) || rec.Remaining < l.until-m.now {
			t.Fatalf("%s: %+v, want %s as in %+v", what, rec, id, l)
		}
	}
	for _, past := range k.PastHolders(driver.MaxHistory, now) {
		if l, is := live[past.Owner]; is && l.token == past.Token {
			t.Fatalf("%s: the present holder %s is among the past ones", what, past.Owner)
		}
	}
	latestFirst := func(a, b driver.Tenure) int { return cmp.Compare(b.Token, a.Token) }
	if past := k.PastHolders(driver.MaxHistory, now); !slices.IsSortedFunc(past, latestFirst) {
		t.Fatalf("%s: the history %s is not in the order of the tokens", what, ends(past))
	}
}
