package mongo

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

var (
	differentialSeed  = flag.Uint64("differential-seed", 0, "of TestServerDecidesAsLockstate; 0: a random one")
	differentialSteps = flag.Int("differential-steps", 2000, "of TestServerDecidesAsLockstate")
)

// What the server decides is the same as what lockstate decides about the same record, request and clock: the
// outcome and every field of the record afterwards. Each random step runs the driver's own command on a real
// server; its reply shows the server's clock, by which lockstate then decides.
//
// Time passes by moving all times of the record back, and the server's clock steps back by moving them ahead.
//
// The differences are few, and meant:
//   - A renewal's time is at least a millisecond after the last one, since it is a part of the revision.
//   - A request that does not wait leaves the queue as it is, and passes one in which all poll: its rules are shorter.
//     For the same reason the last holder of an expired lease that others wait for keeps its token if it repeats its
//     request so.
//   - A queue in which all poll shows no waiters: nobody waits for them.
//   - History after a step of the clock: lockstate notes how a lease ended, and MongoDB finds out by the times.
//   - A refusal by readers does not list them.
//   - A waiter that has a position in one mode and asks in the other without waiting is told the turn of that mode.
func TestServerDecidesAsLockstate(t *testing.T) {
	t.Parallel()
	seed := *differentialSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-differential-seed=%d", seed)
	const records = 40
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	steps, done := *differentialSteps/records, map[string]int{}
	// The steps go on until each outcome has occurred, so it depends on no seed, and on no busy machine, whether one does.
	for i := 0; i < records || *differentialSteps >= 2000 && i < 20*records && len(missing(done)) > 0; i++ {
		d := &differential{T: t, l: l, coll: coll, rand: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprint("$kid ", i), done: done}
		d.begin(i)
		for n := range steps {
			if d.step(); t.Failed() {
				last := strings.Join(d.log[max(0, len(d.log)-12):], "\n")
				t.Fatalf("record %d, step %d, with -differential-seed=%d; the last steps:\n%s", i, n, seed, last)
			}
		}
	}
	t.Log(done)
	if all := missing(done); *differentialSteps >= 2000 && len(all) > 0 {
		t.Errorf("no step with the outcomes %q", all)
	}
}

// missing lists the outcomes that steps must have, and have not had.
func missing(done map[string]int) (all []string) {
	for _, what := range []string{
		"acquire* granted", "acquire* refused", "acquire* reserved", "acquire* repeated", "acquire replacing* granted",
		"acquire replacing* refused",
		"poll* granted", "poll* refused", "renew true", "renew false",
		"release true", "release false", "queue emptied", "*break true", "*free true", "leave", "write <nil>",
		"write holdfast: data changed meanwhile", "write holdfast: lease lost", "read* granted", "read* joined", "read* refused",
		"read* reserved", "read* repeated", "read replacing* granted", "* after readers granted", "* after readers refused",
		"reader's renew true", "reader's release true", "reader's break true", "reader's free true",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(done)), func(key string) bool {
			matches, err := path.Match(what, key)
			return matches && err == nil
		}) {
			all = append(all, what)
		}
	}
	return all
}

// differential compares one record on the server with a model.
type differential struct {
	*testing.T
	l       *Locker
	coll    *mongo.Collection
	rand    *rand.Rand
	name    string
	model   lockstate.Lock
	exists  bool
	stepped bool // back, with the clock
	seen    []revisionPair
	log     []string
	done    map[string]int
}

// revisionPair is the revision of one renewal, on the server and in the model.
type revisionPair struct {
	leaseID   string
	renewedAt time.Time
	shared    driver.Revision // of readers
	model     driver.Revision
}

func (p revisionPair) real() driver.Revision {
	if !p.shared.IsZero() {
		return p.shared
	}
	return revision(p.leaseID, p.renewedAt)
}

func (d *differential) oneOf(all ...string) string { return all[d.rand.IntN(len(all))] }

func (d *differential) waiter() string { return fmt.Sprint("w", d.rand.IntN(6)) }

func (d *differential) milliseconds(all ...int) time.Duration {
	return time.Duration(all[d.rand.IntN(len(all))]) * time.Millisecond
}

func momentOf(now time.Time) lockstate.Moment {
	return lockstate.Moment{Elapsed: elapsed(now), Wall: now}
}

func elapsed(at time.Time) time.Duration { return time.Duration(at.UnixNano()) }

// begin makes a record. Some have a long queue, or a full one.
func (d *differential) begin(n int) {
	length := 0
	switch n % 8 {
	case 1, 2:
		length = driver.LongQueue - 2 + d.rand.IntN(6)
	case 3:
		if n%16 == 3 {
			length = driver.MaxWaiters - d.rand.IntN(2)
		}
	}
	if length == 0 {
		return
	}
	now := time.Now().Truncate(time.Millisecond).UTC()
	req := driver.Request{Name: d.name, ID: driver.NewLeaseID("a"), Owner: "o", TTL: time.Minute}
	r, err := d.l.apply(bounded(d.T), req, asker{})
	if err != nil {
		d.Fatal(err)
	}
	d.model.Acquire(req, "a", momentOf(r.now))
	d.exists = true
	queue := list{}
	for i := range length {
		until := elapsed(now) + d.milliseconds(10_000, 300_000, 3_000_000)
		w := lockstate.Waiter{ID: fmt.Sprint("x", i), Until: until, Polls: d.rand.IntN(6) == 0, Shared: d.rand.IntN(3) > 0}
		if i < 6 { // the waiters of the test
			w.ID = fmt.Sprint("w", i)
		}
		d.model.Queue = append(d.model.Queue, w)
		e := doc{field(fieldWaiter, w.ID), field(fieldUntil, time.Unix(0, int64(w.Until)))}
		if w.Polls {
			e = append(e, field(fieldPolls, true))
		}
		if w.Shared {
			e = append(e, field(fieldShared, true))
		}
		queue = append(queue, e)
	}
	overwrite(d.T, d.coll, d.name, field(fieldQueue, queue), field(fieldReserve, driver.Turn(length+1).Milliseconds()))
}

// step makes a random change on both sides, and compares the records.
func (d *differential) step() {
	before := d.model
	switch n := d.rand.IntN(100); {
	case n < 45:
		d.acquire()
	case n < 52:
		d.renew()
	case n < 62:
		d.release()
	case n < 66:
		d.breakHolder()
	case n < 69:
		d.leave()
	case n < 75:
		d.write()
	default:
		d.pass()
	}
	if d.Failed() || !d.exists {
		return
	}
	d.compare(before)
}

func (d *differential) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

func (d *differential) count(what string, outcome any) { d.done[fmt.Sprint(what, " ", outcome)]++ }

func (d *differential) acquire() {
	id := d.oneOf("a", "b", "c", "d", fmt.Sprint("e", d.rand.IntN(1000)))
	req := driver.Request{Name: d.name, ID: driver.NewLeaseID(id), Owner: d.oneOf("$owner", "o", ""), TTL: d.milliseconds(500, 3000, 30_000)}
	verb := "acquire"
	switch d.rand.IntN(8) {
	case 0, 1:
		req.Data = []byte(d.oneOf("", "$data", "some"))
	case 2, 3, 4, 5:
		verb, req.Mode = "read", driver.Shared
	}
	model := req // the model has revisions of its own
	if len(d.seen) > 0 && d.rand.IntN(10) < 3 {
		verb += " replacing"
		known := d.seen[len(d.seen)-1-d.rand.IntN(min(2, len(d.seen)))]
		req.Replace, model.Replace = known.real(), known.model
	}
	who := asker{}
	if req.QueueFor = d.milliseconds(0, 0, 1000, 5000, 20_000, 500_000); req.QueueFor > 0 {
		who = asker{id: d.waiter(), polls: d.rand.IntN(4) == 0}
	}
	if verb == "acquire" && who.polls {
		verb = "poll"
	}
	if req.Mode == driver.Shared && who.id == "" && d.rand.IntN(2) == 0 {
		who.id = d.waiter()
	}
	model.QueueFor = req.QueueFor
	r, err := d.l.apply(bounded(d.T), req, who)
	switch { // as Locker.acquire
	case err != nil || req.Mode == driver.Shared:
	case r.version == sharedVersion && (who.id != "" || r.free() || !req.Replace.IsZero()):
		if who.amongReaders = true; who.id == "" {
			who.id = d.waiter()
		}
		verb += " after readers"
		r, err = d.l.apply(bounded(d.T), req, who)
	case who.id == "" && r.leaseID != id && r.reserve > 0 && r.free():
		who.id = d.waiter()
		r, err = d.l.apply(bounded(d.T), req, who)
	}
	if err != nil {
		d.Errorf("%s: %v", verb, err)
		return
	}
	d.exists = true
	now := momentOf(r.now)
	token, queue, emptied, ask := d.model.Token, d.model.Queue, d.model.Emptied, d.model.AcquireInTurn
	readers := len(d.model.Readers)
	if who.polls {
		ask = d.model.AcquirePolling
	}
	lease, granted := r.granted(req)
	var want bool
	switch held := d.model.Held(now); {
	case who.id != "" || held || req.Mode == driver.Shared:
		want = ask(model, id, who.id, now)
	case d.model.Holder == id && d.reserves():
		want = d.model.Renew(id, req.TTL, now)
	case !d.reserves():
		want = d.model.Acquire(model, id, now)
	default:
		want = ask(model, id, "", now)
		d.model.Queue = queue
	}
	if who.id == "" && req.Mode == driver.Exclusive {
		d.model.Emptied = emptied
	}
	outcome := "refused"
	refusal := d.model.Refusal(d.name, who.id, now)
	switch {
	case granted && d.model.Token == token:
		outcome = "repeated"
	case granted && len(d.model.Readers) > 1 && readers > 0:
		outcome = "joined"
	case granted:
		outcome = "granted"
	case refusal.Reserved:
		outcome = "reserved"
	}
	d.count(verb, outcome)
	d.note("%s by %q as %+v, %+v, for %v: %s at %v", verb, id, who, req.Replace.Mark(), req.QueueFor, outcome, r.now)
	if granted != want {
		d.Errorf("%s: granted %v, want %v", verb, granted, want)
	} else if !granted {
		d.compareRefusals(r.refusal(), refusal, who, req.Mode)
	} else if want := d.model.Lease(req, id); lease.Token != want.Token || lease.Owner != want.Owner || lease.Mode != want.Mode {
		d.Errorf("%s: granted %+v, want %+v", verb, lease, want)
	}
}

// reserves reports whether the lock is reserved for waiters when it becomes free.
func (d *differential) reserves() bool {
	return slices.ContainsFunc(d.model.Queue, func(w lockstate.Waiter) bool { return !w.Polls })
}

// timeFields are the fields of a document and of its history that have times.
var timeFields = []string{fieldRenewedAt, fieldExpiresAt, fieldAcquiredAt, fieldReleasedAt, fieldBrokenAt, fieldFreedAt}
var pastTimes = []string{pastAcquired, pastExpires, pastReleased, pastBroken, pastFreed, pastTaken, pastUntil}
var readerTimes = []string{readerAcquired, readerExpires, readerRenewed}

// pass lets time pass, by moving all times of the record back, or lets the clock step back.
func (d *differential) pass() {
	by := d.milliseconds(20, 100, 190, 200, 210, 400, 600, 1000, 2000, 10_000, 40_000)
	if d.rand.IntN(3) == 0 { // just before or after something ends, by the clock of this machine
		end := d.model.Expires
		if n := len(d.model.Queue); d.model.Holder == "" {
			end += driver.Turn(1 + d.rand.IntN(7))
		} else if n > 0 && d.rand.IntN(2) == 0 {
			end = d.model.Queue[d.rand.IntN(n)].Until
		} else if n := len(d.model.Readers); n > 0 {
			end = d.model.Readers[d.rand.IntN(n)].Expires
		}
		if exact := end - elapsed(time.Now().Truncate(time.Millisecond)) - d.milliseconds(0, 2, 5, 10, 20, 40); exact > 0 {
			by = exact
		}
	}
	if d.rand.IntN(25) == 0 && d.exists {
		by, d.stepped = -d.milliseconds(100, 900, 5000), true
	}
	d.note("%v pass", by)
	moved := func(path string) any {
		return cond(expr("$eq", docOf("$type", path), "date"), expr("$subtract", path, by.Milliseconds()), path)
	}
	change := doc{}
	for _, name := range timeFields {
		change = append(change, field(name, cond(expr("$eq", docOf("$type", ref(name)), "missing"), removeField, moved(ref(name)))))
	}
	movedAll := func(names []string) (all doc) {
		for _, name := range names {
			path := refOne + "." + name
			all = append(all, field(name, cond(expr("$eq", docOf("$type", path), "missing"), removeField, moved(path))))
		}
		return all
	}
	change = append(change,
		field(fieldQueue, mapped(queueOf(), expr("$mergeObjects", refOne, docOf(fieldUntil, moved(refOne+"."+fieldUntil))))),
		field(fieldHistory, mapped(expr("$ifNull", ref(fieldHistory), list{}), expr("$mergeObjects", refOne, movedAll(pastTimes)))),
		field(fieldReaders, mapped(sharedReaders, expr("$mergeObjects", refOne, movedAll(readerTimes)))))
	k := &d.model
	if by < 0 { // to a clock that has stepped back, the token is ahead, too
		change = append(change, field(fieldToken, expr("$add", ref(fieldToken), -by.Milliseconds())))
		k.Token += uint64(-by.Milliseconds())
		d.seen = nil // a revision of lockstate has the token
	}
	if _, err := d.coll.UpdateOne(bounded(d.T), docOf(fieldName, d.name), list{docOf("$set", change)}); err != nil {
		d.Fatal(err)
	}
	k.Expires -= by
	k.AcquiredAt, k.RenewedAt = k.AcquiredAt.Add(-by), k.RenewedAt.Add(-by)
	k.Readers = slices.Clone(k.Readers)
	for i := range k.Readers {
		r := &k.Readers[i]
		r.Expires, r.Acquired, r.Renewed = r.Expires-by, r.Acquired-by.Milliseconds(), r.Renewed-by.Milliseconds()
	}
	k.Queue = slices.Clone(k.Queue)
	for i := range k.Queue {
		k.Queue[i].Until -= by
	}
	for i := range k.History {
		k.History[i].From = k.History[i].From.Add(-by)
		if !k.History[i].Until.IsZero() {
			k.History[i].Until = k.History[i].Until.Add(-by)
		}
	}
	for i := range d.seen {
		d.seen[i].renewedAt = d.seen[i].renewedAt.Add(-by)
	}
}
