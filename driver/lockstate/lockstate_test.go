package lockstate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

var start = time.UnixMilli(1_000)

// at is the moment so many seconds after the start.
func at(seconds int) lockstate.Moment {
	d := time.Duration(seconds) * time.Second
	return lockstate.Moment{Elapsed: d, Wall: start.Add(d)}
}

func request(owner string, ttl time.Duration) driver.Request {
	return driver.Request{Name: "n", ID: driver.NewLeaseID(owner), Owner: owner, TTL: ttl}
}

// heldByA is a lock that a was granted at 0 s for 10 s.
func heldByA(t *testing.T) *lockstate.Lock {
	t.Helper()
	k := new(lockstate.Lock)
	req := request("a", 10*time.Second)
	req.Data = []byte("a's")
	if !k.Acquire(req, "a", at(0)) {
		t.Fatal("a new lock was not granted")
	}
	return k
}

// A fail-over can forget a renewal that a waiter has seen. The next one has its number, and is another: a waiter that saw the first
// a whole TTL ago does not take the lock from a holder that is alive.
func TestRevisionOfAForgottenRenewal(t *testing.T) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		k := new(lockstate.Lock)
		req := request("a", 10*time.Second)
		if req.Mode = mode; !k.Acquire(req, "a", at(0)) || !k.Renew("a", req.TTL, at(1)) {
			t.Fatal("not granted")
		}
		forgotten := *k
		forgotten.Renew("a", req.TTL, at(2))
		seen := forgotten.Record("n", at(2)).Revision
		k.Renew("a", req.TTL, at(8))
		other := request("b", 10*time.Second)
		if other.Replace = seen; k.Acquire(other, "b", at(13)) {
			t.Errorf("%v: taken from a holder that has renewed 5 s ago", mode)
		}
		if other.Replace = k.Record("n", at(13)).Revision; !k.Acquire(other, "b", at(13)) {
			t.Errorf("%v: not taken with its present revision", mode)
		}
	}
}

// While the clock is behind, the token of a grant that was forgotten comes again. The revision does not.
func TestRevisionOfAForgottenGrant(t *testing.T) {
	k := &lockstate.Lock{Token: 5_000_000}
	forgotten := *k
	if !forgotten.Acquire(request("a", 10*time.Second), "a", at(1)) || !k.Acquire(request("b", 10*time.Second), "b", at(2)) {
		t.Fatal("not granted")
	}
	if forgotten.Token != k.Token || forgotten.Record("n", at(2)).Revision == k.Record("n", at(2)).Revision {
		t.Errorf("tokens %d and %d; the revisions are the same", forgotten.Token, k.Token)
	}
}

// step is a change of a lock, at a time in seconds after the start. It reports whether there was one.
type step func(k *lockstate.Lock) bool

func acquire(req driver.Request, seconds int) step {
	return func(k *lockstate.Lock) bool { return k.Acquire(req, req.Owner, at(seconds)) }
}

// replace is a request that replaces the holder that it sees at first.
func replace(req driver.Request, seconds int) step {
	return func(k *lockstate.Lock) bool {
		req.Replace = k.Record("n", at(0)).Revision
		return acquire(req, seconds)(k)
	}
}

func renew(holder string, ttl time.Duration, seconds int) step {
	return func(k *lockstate.Lock) bool { return k.Renew(holder, ttl, at(seconds)) }
}

func release(holder string, seconds int) step {
	return func(k *lockstate.Lock) bool { return k.Release(holder, at(seconds)) }
}

func breaks(only ...uint64) step { return func(k *lockstate.Lock) bool { return k.Break(only...) } }

func breakNow(seconds int, only ...uint64) step {
	return func(k *lockstate.Lock) bool { return k.BreakNow(at(seconds), only...) }
}

func endedByTheStore(end driver.End) step {
	return func(k *lockstate.Lock) bool { k.End(end, time.Time{}); return true }
}

// Each change of an exclusive lock: to whom it is granted, until when, and what is known of the holders before.
func TestExclusive(t *testing.T) {
	const ttl = 10 * time.Second
	a, brief, b := request("a", ttl), request("a", time.Second), request("b", ttl)
	withData := func(req driver.Request, data string) driver.Request { req.Data = []byte(data); return req }
	itsData := withData(b, "b's")
	renewA, releaseA, lost := renew("a", ttl, 4), release("a", 1), func(k *lockstate.Lock) bool { k.Holder = ""; return true }
	for name, c := range map[string]struct { // after the grant to a
		steps []step
		// done has a sign for each step: - if nothing was changed, = if the revision is the same, and + if it is another.
		done    string
		at      int
		record  string // the last grant, renewal and end are in seconds after the start
		history string
	}{
		"held":                     {nil, "", 9, "held by a 1000 [0 0 10] 10s a's", ""},
		"held by another":          {[]step{acquire(b, 9)}, "-", 9, "held by a 1000 [0 0 10] 10s a's", ""},
		"expired":                  {nil, "", 12, "free of a 1000 [0 0 10] 10s a's", "a expired @10"},
		"expired, granted":         {[]step{acquire(b, 10)}, "+", 16, "held by b 11000 [10 10 20] 10s a's", "a expired @10"},
		"expired, granted later":   {[]step{acquire(b, 15)}, "+", 16, "held by b 16000 [15 15 25] 10s a's", "a expired @10"},
		"expired, granted again":   {[]step{acquire(a, 10)}, "+", 16, "held by a 11000 [10 10 20] 10s a's", "a expired @10"},
		"expired, renewed":         {[]step{renew("a", ttl, 11)}, "+", 12, "held by a 1000 [0 11 21] 10s a's", ""},
		"long expired, renewed":    {[]step{renew("a", ttl, 99)}, "+", 99, "held by a 1000 [0 99 109] 10s a's", ""},
		"repeated, with data":      {[]step{acquire(withData(a, "new"), 4)}, "+", 4, "held by a 1000 [0 4 14] 10s a's", ""},
		"refused and repeated":     {[]step{acquire(b, 1), acquire(brief, 1)}, "-+", 2, "held by a 1000 [0 1 10] 10s a's", ""},
		"asked for as a reader":    {[]step{acquire(shared("a", time.Minute), 1)}, "-", 1, "held by a 1000 [0 0 10] 10s a's", ""},
		"granted with data":        {[]step{acquire(itsData, 10)}, "+", 10, "held by b 11000 [10 10 20] 10s b's", "a expired @10"},
		"granted with empty data":  {[]step{acquire(withData(b, ""), 10)}, "+", 10, "held by b 11000 [10 10 20] 10s ", "a expired @10"},
		"replaced":                 {[]step{replace(b, 0)}, "+", 0, "held by b 1001 [0 0 10] 10s a's", "a taken over @0"},
		"replaced later":           {[]step{replace(b, 4)}, "+", 5, "held by b 5000 [4 4 14] 10s a's", "a taken over @4"},
		"replaced, outdated":       {[]step{outdated(b)}, "-", 0, "held by a 1000 [0 0 10] 10s a's", ""},
		"replaced, no revision":    {[]step{acquire(b, 0)}, "-", 0, "held by a 1000 [0 0 10] 10s a's", ""},
		"renewed":                  {[]step{renewA}, "+", 5, "held by a 1000 [0 4 14] 10s a's", ""},
		"renewed, expired":         {[]step{renewA}, "+", 14, "free of a 1000 [0 4 14] 10s a's", "a expired @14"},
		"renewed, not shortened":   {[]step{renew("a", time.Second, 4)}, "+", 4, "held by a 1000 [0 4 10] 10s a's", ""},
		"renewed, longer":          {[]step{renew("a", time.Minute, 4)}, "+", 4, "held by a 1000 [0 4 64] 1m0s a's", ""},
		"renewed by another":       {[]step{renew("b", ttl, 4)}, "-", 4, "held by a 1000 [0 0 10] 10s a's", ""},
		"expired, by another":      {[]step{renew("b", ttl, 99)}, "-", 99, "free of a 1000 [0 0 10] 10s a's", "a expired @10"},
		"renewed by nobody":        {[]step{releaseA, renew("", ttl, 0)}, "+-", 5, "free of a 1000 [0 0 10] 10s a's", "a released @1"},
		"released":                 {[]step{release("a", 3)}, "+", 5, "free of a 1000 [0 0 10] 10s a's", "a released @3"},
		"released twice":           {[]step{release("a", 3), release("a", 4)}, "+-", 5, "free of a 1000 [0 0 10] 10s a's", "a released @3"},
		"released by another":      {[]step{release("b", 3)}, "-", 5, "held by a 1000 [0 0 10] 10s a's", ""},
		"released by nobody":       {[]step{releaseA, release("", 1)}, "+-", 5, "free of a 1000 [0 0 10] 10s a's", "a released @1"},
		"released, renewed":        {[]step{releaseA, renew("a", ttl, 0)}, "+-", 5, "free of a 1000 [0 0 10] 10s a's", "a released @1"},
		"released, broken":         {[]step{releaseA, breaks()}, "+-", 5, "free of a 1000 [0 0 10] 10s a's", "a released @1"},
		"released, granted":        {[]step{release("a", 3), acquire(b, 4)}, "++", 5, "held by b 5000 [4 4 14] 10s a's", "a released @3"},
		"released, granted before": {[]step{releaseA, acquire(b, 0)}, "++", 0, "held by b 1001 [0 0 10] 10s a's", "a released @1"},
		"granted, renewed by the last": {[]step{releaseA, acquire(request("b", 5*time.Second), 1), renew("a", ttl, 0)}, "++-", 1,
			"held by b 2000 [1 1 6] 5s a's", "a released @1"},
		"both released": {[]step{release("a", 3), acquire(b, 4), release("b", 5)}, "+++", 5, "free of b 5000 [4 4 14] 10s a's",
			"b released @5, a released @3"},
		"broken":                {[]step{breaks()}, "=", 5, "held by a 1000 [0 0 10] 10s a's!", ""},
		"broken twice":          {[]step{breaks(), breaks()}, "=-", 5, "held by a 1000 [0 0 10] 10s a's!", ""},
		"broken, expired":       {[]step{breaks()}, "=", 12, "free of a 1000 [0 0 10] 10s a's", "a broken @10"},
		"broken, asked for":     {[]step{breaks(), acquire(b, 9)}, "=-", 9, "held by a 1000 [0 0 10] 10s a's!", ""},
		"broken, granted":       {[]step{breaks(), acquire(b, 10)}, "=+", 10, "held by b 11000 [10 10 20] 10s a's", "a broken @10"},
		"broken, granted later": {[]step{breaks(), acquire(b, 11)}, "=+", 12, "held by b 12000 [11 11 21] 10s a's", "a broken @10"},
		"broken, repeated":      {[]step{breaks(), acquire(a, 4)}, "=-", 4, "held by a 1000 [0 0 10] 10s a's!", ""},
		"broken, renewed":       {[]step{breaks(), renewA}, "=-", 4, "held by a 1000 [0 0 10] 10s a's!", ""},
		"broken, renewed late":  {[]step{breaks(), renew("a", ttl, 99)}, "=-", 99, "free of a 1000 [0 0 10] 10s a's", "a broken @10"},
		"broken, released":      {[]step{breaks(), release("a", 5)}, "=+", 6, "free of a 1000 [0 0 10] 10s a's", "a broken @5"},
		"freed":                 {[]step{breakNow(6), breakNow(7)}, "+-", 8, "free of a 1000 [0 0 10] 10s a's", "a freed @6"},
		"freed, granted":        {[]step{breakNow(1), acquire(b, 0)}, "++", 0, "held by b 1001 [0 0 10] 10s a's", "a freed @1"},
		"broken, freed":         {[]step{breaks(), breakNow(6)}, "=+", 8, "free of a 1000 [0 0 10] 10s a's", "a freed @6"},
		"ended by the store":    {[]step{endedByTheStore(driver.EndExpired)}, "+", 1, "free of a 1000 [0 0 10] 10s a's", "a expired"},
		"released, not kept":    {[]step{lost}, "+", 5, "free of a 1000 [0 0 10] 10s a's", "a unknown"},
		"granted after that": {[]step{lost, acquire(b, 4), release("b", 5)}, "+++", 6, "free of b 5000 [4 4 14] 10s a's",
			"b released @5, a unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			done := ""
			for _, step := range c.steps {
				before := k.Record("n", at(0)).Revision
				changed := step(k)
				same := k.Record("n", at(0)).Revision == before
				done += map[[2]bool]string{{false, true}: "-", {true, true}: "=", {true, false}: "+"}[[2]bool{changed, same}]
			}
			for range 2 { // reading changes nothing
				r := k.Record("n", at(c.at))
				if got := described(k, r); done != c.done || got != c.record {
					t.Errorf("%s %q, want %s %q", done, got, c.done, c.record)
				}
				held := strings.HasPrefix(c.record, "held")
				if r.Name != "n" || r.RemainingKnown != held || held && r.Remaining != k.Expires-at(c.at).Elapsed || r.Revision.IsZero() == held ||
					held && k.Holder != r.Owner || len(k.Readers) > 0 {
					t.Errorf("got %+v of the holder %q", r, k.Holder)
				}
				if got := ends(k.PastHolders(driver.MaxHistory, at(c.at))); got != c.history {
					t.Errorf("the history is %q, want %q", got, c.history)
				}
				clear(r.Data) // a copy
			}
		})
	}
	if past := new(lockstate.Lock).PastHolders(driver.MaxHistory, at(0)); len(past) != 0 {
		t.Errorf("a lock that was never granted has the history %+v", past)
	}
}

// outdated is a request that replaces the holder by a revision that the lock does not have: that of another renewal.
func outdated(req driver.Request) step {
	return func(k *lockstate.Lock) bool {
		other := *k
		other.Renew(k.Holder, k.TTL, at(0))
		req.Replace = other.Record("n", at(0)).Revision
		return acquire(req, 0)(k)
	}
}

// described is a record in short, with a ! if it is broken.
func described(k *lockstate.Lock, r driver.Record) string {
	by := map[driver.State]string{driver.StateHeld: "by", driver.StateFree: "of"}[r.State]
	text := fmt.Sprintf("%v %s %s %d [%v %v %v] %v %s", r.State, by, r.Owner, r.Token,
		r.AcquiredAt.Sub(start).Seconds(), r.RenewedAt.Sub(start).Seconds(), k.Expires.Seconds(), k.TTL, r.Data)
	return text + map[bool]string{true: "!"}[r.Broken]
}

// A token is greater than the last one even if the clock steps back, or stands before 1970.
func TestTokensRise(t *testing.T) {
	k := heldByA(t)
	last := k.Token
	for _, wall := range []time.Time{start.Add(time.Hour), start, time.Unix(-1000, 0), {}} {
		k.BreakNow(lockstate.Moment{Wall: wall})
		k.Acquire(request("b", time.Second), "b", lockstate.Moment{Wall: wall})
		if k.Token <= last {
			t.Errorf("with the clock at %v: token %d after %d", wall, k.Token, last)
		}
		last = k.Token
	}
	var first lockstate.Lock
	if first.Acquire(request("a", time.Second), "a", lockstate.Moment{Wall: time.Unix(-1000, 0)}); first.Token != 1 {
		t.Errorf("the first token is %d with a clock before 1970, want 1", first.Token)
	}
}

func TestWrite(t *testing.T) {
	granted := driver.DataRevision{Token: 1000}
	for name, c := range map[string]struct {
		holder  string
		at      driver.DataRevision
		seconds int
		want    error
	}{
		"by the holder":            {"a", granted, 9, nil},
		"by another":               {"b", granted, 9, driver.ErrLost},
		"by nobody":                {"", granted, 9, driver.ErrLost},
		"after expiry":             {"a", granted, 10, driver.ErrLost},
		"of another revision":      {"a", granted.Next(), 9, driver.ErrConflict},
		"of the holder before":     {"a", driver.DataRevision{Token: 999}, 9, driver.ErrConflict},
		"of another, and too late": {"b", granted.Next(), 10, driver.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			data := []byte("new")
			err := k.Write(c.holder, data, c.at, at(c.seconds))
			want, revision := "new", granted.Next()
			if c.want != nil {
				want, revision = "a's", granted
			}
			data[0] = 'x' // the lock has its own copy
			if !errors.Is(err, c.want) || string(k.Data) != want || k.DataRevision() != revision {
				t.Errorf("error %v, data %q, revision %+v; want %v, %q, %+v", err, k.Data, k.DataRevision(), c.want, want, revision)
			}
		})
	}
}

// FuzzLock makes random changes at random times, on a wall clock that steps. Each step is one
// byte for the call and one for its argument. After each step:
//
//   - The lock is granted only if it was free, expired or replaced.
//   - The token is greater after each grant, and otherwise the same.
//   - A lease never gets shorter, and its revision changes with every renewal.
func FuzzLock(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 2, 10, 0, 1, 1, 0, 3, 1})
	f.Add([]byte{0, 0, 4, 0, 1, 0, 0, 0, 2, 255, 0, 2, 5, 0, 0, 1})
	f.Add([]byte{0, 1, 6, 128, 0, 18, 7, 1, 8, 2})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var k lockstate.Lock
		now := lockstate.Moment{Wall: start}
		for ; len(steps) >= 2; steps = steps[2:] {
			before, wasHeld := k, k.Held(now)
			seen := k.Record("n", now).Revision
			holder := string('a' + rune(steps[1]%3))
			ttl := time.Duration(1+steps[1]/3) * time.Second
			granted, renewed := false, false
			switch req := request(holder, ttl); steps[0] % 9 {
			case 0:
				changed := k.Acquire(req, holder, now)
				granted, renewed = changed && (!wasHeld || before.Holder != holder), changed && wasHeld && before.Holder == holder
				if changed && wasHeld && before.Holder != holder {
					t.Fatalf("%+v was granted to %s", before, holder)
				}
			case 1:
				renewed = k.Renew(holder, ttl, now)
			case 2:
				now.Elapsed += ttl
				now.Wall = now.Wall.Add(ttl)
			case 3:
				k.Release(holder, now)
			case 4:
				k.Break()
			case 5:
				k.BreakNow(now)
			case 6:
				now.Wall = now.Wall.Add(time.Duration(int8(steps[1])) * time.Hour)
			case 7:
				req.Replace = seen
				changed := k.Acquire(req, holder, now)
				renewed = changed && wasHeld && before.Holder == holder
				granted = changed && !renewed
			case 8:
				if err := k.Write(holder, steps[1:2], k.DataRevision(), now); (err == nil) != (wasHeld && before.Holder == holder) {
					t.Fatalf("%+v was written by %s: %v", before, holder, err)
				}
			}
			switch {
			case granted && (k.Token <= before.Token || k.Token < uint64(max(now.Wall.UnixMilli(), 0)) || k.Broken):
				t.Fatalf("%+v after %+v", k, before)
			case !granted && k.Token != before.Token:
				t.Fatalf("the token is %d without a grant after %d", k.Token, before.Token)
			case renewed && (before.Broken || k.Expires < before.Expires || k.TTL < before.TTL):
				t.Fatalf("%+v was renewed to %+v", before, k)
			case (granted || renewed) && !seen.IsZero() && k.Record("n", now).Revision == seen:
				t.Fatalf("the revision of %+v is that of %+v", k, before)
			}
			if r := k.Record("n", now); r.RemainingKnown && (r.Remaining <= 0 || r.Remaining > k.TTL) {
				t.Fatalf("%v left of %+v", r.Remaining, k)
			}
		}
	})
}
