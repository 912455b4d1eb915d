package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

var (
	differentialSeed  = flag.Uint64("differential-seed", 0, "of TestServerDecidesAsLockstate; 0: a random one")
	differentialSteps = flag.Int("differential-steps", 2000, "of TestServerDecidesAsLockstate")
)

// What the statements decide is the same as what lockstate decides about the same record, request and clock: the outcome
// and every field of the record afterwards. Each random step runs the driver's own statements on a real server. The row is
// compared with what lockstate makes of the row before it. A statement reads the clock several times, so times may
// differ by the tolerance, and so may a token that comes from the clock.
//
// Time passes by moving all times of the row back, and the server's clock steps back by moving them ahead.
func TestServerDecidesAsLockstate(t *testing.T) {
	serverprocess.Long(t, "runs the rules of the queue thousands of times")
	t.Parallel()
	seed := *differentialSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-differential-seed=%d", seed)
	const records = 40
	l := open(t, postgrestest.URL(t))
	steps, done := *differentialSteps/records, map[string]int{}
	if err := l.do(bounded(t), "", "", nil, func(_ context.Context, c *pgx.Conn) error {
		// The steps go on until each outcome has occurred, so it depends on no seed, and on no busy machine, whether one does.
		for i := 0; i < records || *differentialSteps >= 2000 && i < 20*records && len(missing(done)) > 0; i++ {
			d := &differential{T: t, l: l, c: c, rand: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprint("lock ", i), done: done}
			d.begin(i)
			for n := range steps {
				if d.step(); t.Failed() {
					last := strings.Join(d.log[max(0, len(d.log)-12):], "\n")
					t.Fatalf("record %d, step %d, with -differential-seed=%d; the last steps:\n%s", i, n, seed, last)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Log(done)
	if all := missing(done); *differentialSteps >= 2000 && len(all) > 0 {
		t.Errorf("no step with the outcomes %q", all)
	}
}

// missing lists the outcomes that steps must have, and have not had.
func missing(done map[string]int) (all []string) {
	for _, what := range []string{
		"acquire granted", "acquire refused", "acquire reserved", "acquire repeated", "replace granted", "replace refused",
		"poll granted", "poll refused", "poll reserved", "renew true", "renew false",
		"release true", "release false", "break true", "free true", "leave true", "write <nil>",
		"write holdfast: data changed meanwhile", "write holdfast: lease lost",
	} {
		if done[what] == 0 {
			all = append(all, what)
		}
	}
	return all
}

// tolerance is how far apart two readings of the clock for one statement may be, on a machine that is busy.
const tolerance = 2 * time.Second

// differential compares one row on the server with a model.
type differential struct {
	*testing.T
	l      *Locker
	c      *pgx.Conn
	rand   *rand.Rand
	name   string
	before *lockstate.Lock // the row before the step; nil if there is none
	seen   []driver.Revision
	log    []string
	done   map[string]int
}

func (d *differential) oneOf(all ...string) string { return all[d.rand.IntN(len(all))] }

func (d *differential) waiter() string { return fmt.Sprint("l.w", d.rand.IntN(6)) }

func (d *differential) milliseconds(all ...int) time.Duration {
	return time.Duration(all[d.rand.IntN(len(all))]) * time.Millisecond
}

// read reads the row, and the clock.
func (d *differential) read() (*read, lockstate.Moment) {
	d.Helper()
	k, err := readLock(bounded(d.T), d.c, d.l.sql.inspect, toText(d.name))
	if err != nil {
		d.Fatal(err)
	}
	if k.Lock == nil {
		return nil, k.now
	}
	return k, k.now
}

// overwrite writes the row as it is in the model.
func (d *differential) overwrite(k *read) {
	d.Helper()
	if err := d.l.write(bounded(d.T), d.c, d.l.sql, d.name, k); err != nil {
		d.Fatal(err)
	}
}

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
	acquire(d.T, d.l, driver.Request{Name: d.name, ID: driver.NewLeaseID("a"), Owner: "o", TTL: time.Minute})
	k, now := d.read()
	for i := range length {
		w := lockstate.Waiter{ID: fmt.Sprint("l.x", i), Until: now.Elapsed + d.milliseconds(10_000, 300_000, 3_000_000),
			Polls: d.rand.IntN(6) == 0}
		if i < 6 { // the waiters of the test
			w.ID = fmt.Sprint("l.w", i)
		}
		k.Queue = append(k.Queue, w)
	}
	d.overwrite(k)
}

// step makes a random change on both sides, and compares the records.
func (d *differential) step() {
	row, now := d.read()
	d.before = nil
	if row != nil {
		d.before = row.Lock
		if r := row.Record(d.name, now); r.State == driver.StateHeld {
			d.seen = append(d.seen, r.Revision)
		}
	}
	var model *lockstate.Lock
	switch n := d.rand.IntN(100); {
	case n < 50:
		d.compare(d.acquire(now)...)
		return
	case d.before == nil:
		return
	case n < 56:
		model = d.change("renew", func(lease driver.Lease) (bool, error) {
			_, err := d.l.Renew(bounded(d.T), lease)
			if errors.Is(err, driver.ErrLost) {
				return false, nil
			}
			return true, err
		}, func(k *lockstate.Lock, lease driver.Lease, now lockstate.Moment) bool {
			return k.Renew(lockrecord.Digest(lease.ID), lease.TTL, now)
		})
	case n < 66:
		model = d.change("release", func(lease driver.Lease) (bool, error) {
			held := d.before.Holder == lockrecord.Digest(lease.ID)
			return held, d.l.Release(bounded(d.T), lease)
		}, func(k *lockstate.Lock, lease driver.Lease, now lockstate.Moment) bool {
			released := k.Release(lockrecord.Digest(lease.ID), now)
			if released {
				k.Expires = now.Elapsed
			}
			return released
		})
	case n < 70:
		model = d.breakHolder()
	case n < 73:
		waiter := d.waiter()
		if err := d.l.do(bounded(d.T), "leave", d.name, nil, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, d.l.sql.leave, []string{d.name}, waiter)
			return err
		}); err != nil {
			d.Fatal(err)
		}
		model = clone(d.before)
		model.Leave(waiter)
		d.note("leave", "%s", waiter)(true)
	case n < 78:
		model = d.write()
	default:
		d.pass()
		return
	}
	if model != nil && !d.Failed() {
		d.compare(model)
	}
}

// note notes a step, and with its outcome counts it.
func (d *differential) note(verb, format string, args ...any) func(outcome any) {
	return func(outcome any) {
		d.log = append(d.log, fmt.Sprintf("%s %s: %v", verb, fmt.Sprintf(format, args...), outcome))
		d.done[fmt.Sprint(verb, " ", outcome)]++
	}
}

func clone(k *lockstate.Lock) *lockstate.Lock {
	if k == nil {
		return &lockstate.Lock{}
	}
	c := *k
	c.Queue, c.History = slices.Clone(k.Queue), slices.Clone(k.History)
	return &c
}

// acquire makes one attempt with the driver, and the same with the model.
func (d *differential) acquire(earliest lockstate.Moment) (possible []*lockstate.Lock) {
	id := driver.NewLeaseID(d.oneOf("a", "b", "c", "d", fmt.Sprint("e", d.rand.IntN(1000))))
	req := ask{name: d.name, Request: driver.Request{Name: d.name, ID: id,
		Owner: d.oneOf("owner", "o", ""), TTL: d.milliseconds(500, 3000, 30_000)}}
	req.holder = lockrecord.Digest(req.ID)
	if d.rand.IntN(4) == 0 {
		req.Data = []byte(d.oneOf("", "data", "some"))
	}
	verb := "acquire"
	if len(d.seen) > 0 && d.rand.IntN(10) < 3 {
		verb = "replace"
		req.Replace = d.seen[len(d.seen)-1-d.rand.IntN(min(2, len(d.seen)))]
	}
	if req.QueueFor = d.milliseconds(0, 0, 1000, 5000, 20_000, 500_000); req.QueueFor > 0 {
		req.waiter, req.polls = d.waiter(), d.rand.IntN(4) == 0
	} else if d.rand.IntN(4) == 0 {
		req.waiter = d.waiter()
	}
	if verb == "acquire" && req.polls {
		verb = "poll"
	}
	lease, err := d.l.grant(bounded(d.T), d.c, req)
	var refused *driver.HeldError
	if err != nil && !errors.As(err, &refused) {
		d.Fatal(err)
	}
	granted := err == nil
	row, now := d.read()
	if granted && lease.Contended != (len(row.Queue) > 0) {
		d.Errorf("%s: contended %v with %d waiters", verb, lease.Contended, len(row.Queue))
	}
	// The statement has read the clock between these. If something ended or began meanwhile, each outcome is right that one of
	// the moments has. A request that has entered the queue is decided again: a release in between has woken nobody.
	moments := between(earliest, now)
	for i, at := range moments {
		k := clone(d.before)
		want := req.decides(k, at)
		refusal := k.Refusal(d.name, req.waiter, at)
		for _, later := range moments[i:] {
			if granted && !want && k.Position(req.waiter) > 0 {
				want = req.decides(k, later)
			}
		}
		if want != granted || !granted && !sameRefusal(refused, refusal) ||
			granted && d.before != nil && (lease.Token == d.before.Token) != (k.Token == d.before.Token) {
			continue
		}
		k.KeepHistory(d.l.config.history)
		possible = append(possible, k)
	}
	outcome := "refused"
	switch {
	case granted && d.before != nil && lease.Token == d.before.Token:
		outcome = "repeated"
	case granted:
		outcome = "granted"
	case refused.Reserved:
		outcome = "reserved"
	}
	d.note(verb, "by %.4s as %q (polls %v) for %v", req.holder, req.waiter, req.polls, req.QueueFor)(outcome)
	if possible == nil {
		d.Errorf("%s from %v to %v: %v\nbefore: %+v", verb, earliest.Wall, now.Wall, err, d.before)
	}
	return possible
}

// between lists moments from the first to the last. On a busy machine a turn can begin and end between them.
func between(first, last lockstate.Moment) (all []lockstate.Moment) {
	const step = driver.TurnLength / 20
	for at := first; at.Elapsed < last.Elapsed; at = (lockstate.Moment{Elapsed: at.Elapsed + step, Wall: at.Wall.Add(step)}) {
		all = append(all, at)
	}
	return append(all, last)
}

func sameRefusal(x, y *driver.HeldError) bool {
	r, s := x.Record, y.Record
	return x.Reserved == y.Reserved && r.Waiters == s.Waiters && r.Position == s.Position && r.Owner == s.Owner && r.Token == s.Token
}

// lease is one with the ID of the holder or another.
func (d *differential) lease() driver.Lease {
	ids := []string{"a", "b", "c", "d"}
	id := d.oneOf(ids...)
	for _, holder := range ids {
		if d.rand.IntN(3) > 0 && lockrecord.Digest(driver.NewLeaseID(holder)) == d.before.Holder {
			id = holder
		}
	}
	return driver.Lease{Name: d.name, ID: driver.NewLeaseID(id), TTL: d.milliseconds(500, 3000, 30_000)}
}

// change makes a change with a lease on both sides.
func (d *differential) change(
	verb string, call func(driver.Lease) (bool, error), model func(*lockstate.Lock, driver.Lease, lockstate.Moment) bool,
) *lockstate.Lock {
	lease := d.lease()
	got, err := call(lease)
	if err != nil {
		d.Fatal(verb, err)
	}
	_, now := d.read()
	k := clone(d.before)
	want := model(k, lease, now)
	k.KeepHistory(d.l.config.history)
	d.note(verb, "by %.4s", lockrecord.Digest(lease.ID))(got)
	if got != want {
		d.Errorf("%s: %v, want %v", verb, got, want)
	}
	return k
}

func (d *differential) breakHolder() *lockstate.Lock {
	verb, call, apply := "break", d.l.Break, func(k *lockstate.Lock, _ lockstate.Moment) bool { return k.Break() }
	if d.rand.IntN(2) == 0 {
		verb, call, apply = "free", d.l.BreakNow, func(k *lockstate.Lock, now lockstate.Moment) bool {
			freed := k.BreakNow(now)
			if freed {
				k.Expires = now.Elapsed
			}
			return freed
		}
	}
	if err := call(bounded(d.T), d.name, driver.BreakAnybody()); err != nil {
		d.Fatal(verb, err)
	}
	_, now := d.read()
	k := clone(d.before)
	changed := apply(k, now)
	k.KeepHistory(d.l.config.history)
	d.note(verb, "")(changed)
	return k
}

func (d *differential) write() *lockstate.Lock {
	lease, at := d.lease(), d.before.DataRevision()
	if d.rand.IntN(4) == 0 {
		at.Writes++
	}
	data := []byte(d.oneOf("", "other", "more"))
	_, earliest := d.read()
	err := d.l.WriteData(bounded(d.T), lease, data, at)
	_, now := d.read()
	for _, moment := range []lockstate.Moment{now, earliest} {
		k := clone(d.before)
		want := k.Write(lockrecord.Digest(lease.ID), data, at, moment)
		if (err == nil) == (want == nil) && errors.Is(err, want) {
			d.note("write", "by %.4s", lockrecord.Digest(lease.ID))(want)
			return k
		}
	}
	d.Errorf("write: %v", err)
	return nil
}
