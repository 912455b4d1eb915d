package lockstate_test

import (
	"errors"
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

func TestAcquire(t *testing.T) {
	const ttl = 10 * time.Second
	revision := func(k *lockstate.Lock) driver.Revision { return k.Record("n", at(0)).Revision }
	for name, c := range map[string]struct {
		before  func(k *lockstate.Lock) // after the grant to a
		holder  string
		replace func(k *lockstate.Lock) driver.Revision
		seconds int
		data    []byte

		want    bool
		token   uint64 // 1000 is a's
		expires time.Duration
		content string
	}{
		"another holds it": {holder: "b", seconds: 9, want: false, token: 1000, expires: ttl, content: "a's"},
		"expired":          {holder: "b", seconds: 10, want: true, token: 11_000, expires: 20 * time.Second, content: "a's"},
		"released": {before: func(k *lockstate.Lock) { k.Release("a", at(1)) }, holder: "b", want: true, token: 1001,
			expires: ttl, content: "a's"},
		"freed at once": {before: func(k *lockstate.Lock) { k.BreakNow(at(1)) }, holder: "b", want: true, token: 1001,
			expires: ttl, content: "a's"},
		"broken, not expired": {before: func(k *lockstate.Lock) { k.Break() }, holder: "b", seconds: 9, want: false, token: 1000,
			expires: ttl, content: "a's"},
		"broken, expired": {before: func(k *lockstate.Lock) { k.Break() }, holder: "b", seconds: 10, want: true, token: 11_000,
			expires: 20 * time.Second, content: "a's"},
		"repeat": {holder: "a", seconds: 4, data: []byte("new"), want: true, token: 1000, expires: 14 * time.Second,
			content: "a's"},
		"repeat of a broken lease": {before: func(k *lockstate.Lock) { k.Break() }, holder: "a", seconds: 4, want: false, token: 1000,
			expires: ttl, content: "a's"},
		"repeat after expiry": {holder: "a", seconds: 10, want: true, token: 11_000, expires: 20 * time.Second, content: "a's"},
		"with data": {holder: "b", seconds: 10, data: []byte("b's"), want: true, token: 11_000, expires: 20 * time.Second,
			content: "b's"},
		"with empty data": {holder: "b", seconds: 10, data: []byte{}, want: true, token: 11_000, expires: 20 * time.Second,
			content: ""},
		"replace": {holder: "b", replace: revision, want: true, token: 1001, expires: ttl, content: "a's"},
		"replace after a renewal": {before: func(k *lockstate.Lock) { k.Renew("a", ttl, at(0)) }, holder: "b",
			replace: func(*lockstate.Lock) driver.Revision { return driver.NewRevision("1000.1000") }, want: false, token: 1000, expires: ttl,
			content: "a's"},
		"replace without a revision": {holder: "b", replace: func(*lockstate.Lock) driver.Revision { return driver.Revision{} },
			want: false, token: 1000, expires: ttl, content: "a's"},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			if c.before != nil {
				c.before(k)
			}
			req := request(c.holder, ttl)
			req.Data = c.data
			if c.replace != nil {
				req.Replace = c.replace(k)
			}
			got := k.Acquire(req, c.holder, at(c.seconds))
			if got != c.want || k.Token != c.token || k.Expires != c.expires || string(k.Data) != c.content {
				t.Errorf("granted %v, token %d, expires at %v, data %q;\nwant %v, %d, %v, %q",
					got, k.Token, k.Expires, k.Data, c.want, c.token, c.expires, c.content)
			}
			if holder := map[bool]string{true: c.holder, false: "a"}[got]; k.Holder != holder || k.Owner != holder {
				t.Errorf("holder %q and owner %q, want %q", k.Holder, k.Owner, holder)
			}
			if c.want && k.Broken {
				t.Error("the grant is broken")
			}
		})
	}
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

func TestRenew(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(k *lockstate.Lock)
		holder  string
		ttl     time.Duration
		seconds int
		want    bool
		expires time.Duration
		longest time.Duration
	}{
		"extends": {holder: "a", ttl: 10 * time.Second, seconds: 4, want: true, expires: 14 * time.Second,
			longest: 10 * time.Second},
		"never shortens": {holder: "a", ttl: time.Second, seconds: 4, want: true, expires: 10 * time.Second, longest: 10 * time.Second},
		"longer":         {holder: "a", ttl: time.Minute, seconds: 4, want: true, expires: 64 * time.Second, longest: time.Minute},
		"expired, but not taken": {holder: "a", ttl: 10 * time.Second, seconds: 99, want: true, expires: 109 * time.Second,
			longest: 10 * time.Second},
		"another's": {holder: "b", ttl: 10 * time.Second, seconds: 4, want: false, expires: 10 * time.Second,
			longest: 10 * time.Second},
		"another's, expired": {holder: "b", ttl: 10 * time.Second, seconds: 99, want: false, expires: 10 * time.Second,
			longest: 10 * time.Second},
		"nobody's": {before: func(k *lockstate.Lock) { k.Release("a", at(1)) }, holder: "", ttl: 10 * time.Second, want: false,
			expires: 10 * time.Second, longest: 10 * time.Second},
		"released": {before: func(k *lockstate.Lock) { k.Release("a", at(1)) }, holder: "a", ttl: 10 * time.Second, want: false,
			expires: 10 * time.Second, longest: 10 * time.Second},
		"broken": {before: func(k *lockstate.Lock) { k.Break() }, holder: "a", ttl: 10 * time.Second, seconds: 4, want: false,
			expires: 10 * time.Second, longest: 10 * time.Second},
		"broken, expired": {before: func(k *lockstate.Lock) { k.Break() }, holder: "a", ttl: 10 * time.Second, seconds: 99, want: false,
			expires: 10 * time.Second, longest: 10 * time.Second},
		"after another's grant": {before: func(k *lockstate.Lock) {
			k.Release("a", at(1))
			k.Acquire(request("b", 5*time.Second), "b", at(1))
		}, holder: "a", ttl: 10 * time.Second, want: false, expires: 6 * time.Second, longest: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			if c.before != nil {
				c.before(k)
			}
			before := k.Record("n", at(0)).Revision
			got := k.Renew(c.holder, c.ttl, at(c.seconds))
			if got != c.want || k.Expires != c.expires || k.TTL != c.longest {
				t.Errorf("renewed %v, expires at %v, TTL %v; want %v, %v, %v", got, k.Expires, k.TTL, c.want, c.expires, c.longest)
			}
			if changed := k.Record("n", at(0)).Revision != before; changed != c.want {
				t.Errorf("the revision changed: %v, want %v", changed, c.want)
			}
		})
	}
}

func TestReleaseAndBreak(t *testing.T) {
	release := func(holder string) func(*lockstate.Lock) bool {
		return func(k *lockstate.Lock) bool { return k.Release(holder, at(1)) }
	}
	breakNow := func(k *lockstate.Lock) bool { return k.BreakNow(at(1)) }
	breakIt := func(k *lockstate.Lock) bool { return k.Break() }
	for name, c := range map[string]struct {
		steps  []func(*lockstate.Lock) bool
		want   []bool
		state  driver.State
		broken bool
	}{
		"release":            {[]func(*lockstate.Lock) bool{release("a")}, []bool{true}, driver.StateFree, false},
		"release again":      {[]func(*lockstate.Lock) bool{release("a"), release("a")}, []bool{true, false}, driver.StateFree, false},
		"release by another": {[]func(*lockstate.Lock) bool{release("b")}, []bool{false}, driver.StateHeld, false},
		"release by nobody":  {[]func(*lockstate.Lock) bool{release("a"), release("")}, []bool{true, false}, driver.StateFree, false},
		"break":              {[]func(*lockstate.Lock) bool{breakIt}, []bool{true}, driver.StateHeld, true},
		"break again": {[]func(*lockstate.Lock) bool{breakIt, breakIt}, []bool{true, false},
			driver.StateHeld, true},
		"break, then release": {[]func(*lockstate.Lock) bool{breakIt, release("a")}, []bool{true, true}, driver.StateFree, false},
		"break a free lock": {[]func(*lockstate.Lock) bool{release("a"), breakIt}, []bool{true, false}, driver.StateFree,
			false},
		"break now": {[]func(*lockstate.Lock) bool{breakNow, breakNow}, []bool{true, false}, driver.StateFree, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := heldByA(t)
			for i, step := range c.steps {
				if got := step(k); got != c.want[i] {
					t.Errorf("step %d reports %v, want %v", i+1, got, c.want[i])
				}
			}
			if k.Broken != c.broken {
				t.Errorf("the lock is broken: %v, want %v", k.Broken, c.broken)
			}
			if r := k.Record("n", at(1)); r.State != c.state || r.Broken != c.broken || r.Token != 1000 || string(r.Data) != "a's" {
				t.Errorf("state %v, broken %v, token %d, data %q; want %v, %v, 1000, %q", r.State, r.Broken, r.Token, r.Data, c.state, c.broken, "a's")
			}
		})
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

func TestRecord(t *testing.T) {
	k := heldByA(t)
	k.Renew("a", 10*time.Second, at(4))
	for name, c := range map[string]struct {
		seconds   int
		state     driver.State
		remaining time.Duration
	}{
		"held":    {5, driver.StateHeld, 9 * time.Second},
		"expired": {14, driver.StateFree, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := k.Record("n", at(c.seconds))
			held := c.state == driver.StateHeld
			if r.Name != "n" || r.State != c.state || r.Remaining != c.remaining || r.RemainingKnown != held || r.Revision.IsZero() == held {
				t.Errorf("got %+v, want state %v with %v left", r, c.state, c.remaining)
			}
			if r.Owner != "a" || r.Token != 1000 || !r.AcquiredAt.Equal(start) || !r.RenewedAt.Equal(start.Add(4*time.Second)) {
				t.Errorf("got %+v, want the last grant to a", r)
			}
			r.Data[0] = 'x' // the record is a copy
			if string(k.Data) != "a's" {
				t.Errorf("a change of the record changed the lock's data to %q", k.Data)
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
