package mongo

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// 64 clients acquire a name without a record at once. One wins, the others see the holder, and
// none sees the duplicate key error of a second upsert.
func TestOneWinnerAmongMany(t *testing.T) {
	l := newTestLocker(t, mongotest.Collection(t))
	ctx := bounded(t)
	for round := range 5 {
		const clients = 64
		errs := make([]error, clients)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				<-start
				_, errs[i] = l.TryAcquire(ctx, request(fmt.Sprint("contended-", round), fmt.Sprint("id-", i)))
			})
		}
		close(start)
		wg.Wait()
		winners := 0
		for _, err := range errs {
			if err == nil {
				winners++
			} else if !errors.Is(err, driver.ErrHeld) {
				t.Errorf("got %v, want held", err)
			}
		}
		if winners != 1 {
			t.Errorf("%d winners", winners)
		}
	}
}

// Each successful call sends one command with majority write concern and a time limit. An
// acquire matches by _id alone.
func TestCommands(t *testing.T) {
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	var lease driver.Lease
	for _, step := range []struct {
		name string
		call func() error
		want []string
	}{
		{"acquire", func() (err error) { lease, err = l.TryAcquire(ctx, request("n", "a")); return err }, []string{"findAndModify"}},
		{"acquire again", func() error { _, err := l.TryAcquire(ctx, request("n", "a")); return err }, []string{"findAndModify"}},
		{"acquire a held lock", func() error { wantHeld(t, l, request("n", "b")); return nil }, []string{"findAndModify"}},
		{"renew", func() error { return errOf(l.Renew(ctx, lease)) }, []string{"update"}},
		{"write data", func() error { return l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)) }, []string{"update"}},
		{"break", func() error { return l.Break(ctx, "n", driver.BreakAnybody()) }, []string{"find", "update"}},
		{"renew a broken lease", func() error {
			if _, err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
				return fmt.Errorf("got %w, want lost", err)
			}
			return nil
		}, []string{"update", "find"}},
		{"release", func() error { return l.Release(ctx, lease) }, []string{"update"}},
		{"inspect", func() error { _, err := l.Inspect(ctx, "n"); return err }, []string{"find"}},
	} {
		log.take()
		if err := step.call(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		sent := log.take()
		if got := commandNames(sent); !slices.Equal(got, step.want) {
			t.Errorf("%s sent %v, want %v", step.name, got, step.want)
		}
		for _, c := range sent {
			if ms, ok := c.Lookup("maxTimeMS").AsInt64OK(); !ok || ms <= 0 || ms > 10_000 {
				t.Errorf("%s: %s has maxTimeMS %d", step.name, firstField(c), ms)
			}
			concern, field := "writeConcern", "w"
			if firstField(c) == "find" {
				concern, field = "readConcern", "level"
			}
			if got, _ := c.Lookup(concern, field).StringValueOK(); got != "majority" && got != "linearizable" {
				t.Errorf("%s: %s has %s %q", step.name, firstField(c), concern, got)
			}
			if firstField(c) == "findAndModify" {
				if q := c.Lookup("query").Document(); len(mustElements(t, q)) != 1 || q.Lookup(fieldName).StringValue() != "n" {
					t.Errorf("acquire matches %v, want _id alone", q)
				}
			}
		}
	}
}

func mustElements(t *testing.T, raw bson.Raw) []bson.RawElement {
	t.Helper()
	elements, err := raw.Elements()
	if err != nil {
		t.Fatal(err)
	}
	return elements
}

// A value that looks like an expression or an operator is stored unchanged.
func TestCallersValuesAreLiterals(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for _, s := range []string{"$kid", "$$NOW", "$", "a.b", "{$ne: null}"} {
		req := driver.Request{Name: s, ID: driver.NewLeaseID(s), Owner: s, TTL: time.Minute, Data: []byte(s)}
		lease := acquire(t, l, req)
		if lease.Owner != s {
			t.Errorf("owner %q became %q", s, lease.Owner)
		}
		if _, err := l.Renew(bounded(t), lease); err != nil {
			t.Error(err)
		}
		if r := wantHeld(t, l, request(s, "other")); r.Owner != s {
			t.Errorf("owner %q became %q", s, r.Owner)
		}
		if raw := storedDocument(t, coll, s); raw.Lookup(fieldLeaseID).StringValue() != s {
			t.Errorf("ID %q became %v", s, raw.Lookup(fieldLeaseID))
		}
		if data, _, err := l.ReadData(bounded(t), s); err != nil || string(data) != s {
			t.Errorf("data %q became %q, %v", s, data, err)
		}
	}
}

// The document has the documented fields and types, and a failed attempt changes none.
func TestDocument(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	req := request("n", "a")
	req.Data = []byte{0, 1}
	lease := acquire(t, l, req)
	before := storedDocument(t, coll, "n")
	for field, want := range map[string]bson.Type{
		"_id": bson.TypeString, "v": bson.TypeInt32, "kid": bson.TypeString, "owner": bson.TypeString, "ts": bson.TypeDateTime,
		"expiresAt": bson.TypeDateTime, "acquiredAt": bson.TypeDateTime, "token": bson.TypeInt64, "ttl": bson.TypeInt64,
		"data": bson.TypeBinary, "broken": bson.TypeBoolean, "writes": bson.TypeInt64, "history": bson.TypeArray,
		"releasedAt": bson.TypeNull, "brokenAt": bson.TypeNull, "freedAt": bson.TypeNull,
	} {
		if got := before.Lookup(field).Type; got != want {
			t.Errorf("%s is of type %s, want %s", field, got, want)
		}
	}
	if n := len(mustElements(t, before)); n != 16 {
		t.Errorf("%d fields: %v", n, before)
	}
	if got := before.Lookup("expiresAt").DateTime() - before.Lookup("ts").DateTime(); got != req.TTL.Milliseconds() {
		t.Errorf("expires %d ms after the grant", got)
	}
	wantHeld(t, l, request("n", "b"))
	if after := storedDocument(t, coll, "n"); !slices.Equal(before, after) {
		t.Errorf("a try changed %v to %v", before, after)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	after := storedDocument(t, coll, "n")
	if after.Lookup("expiresAt").DateTime() >= before.Lookup("expiresAt").DateTime() {
		t.Error("a released document keeps the lease's expiry")
	}
	if hasField(after, fieldLeaseID) || after.Lookup("token").Int64() != int64(lease.Token) || !hasField(after, fieldData) {
		t.Errorf("after a release: %v", after)
	}
}

// A token is greater than its predecessor and than the server's time.
func TestTokensRise(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	first := acquire(t, l, request("n", "a"))
	if now := uint64(time.Now().UnixMilli()); first.Token < now-3_600_000 || first.Token > now+3_600_000 {
		t.Errorf("the first token %d is not the server's time in ms", first.Token)
	}
	for _, last := range []int64{1 << 60, 7} {
		overwrite(t, coll, "n", field(fieldToken, last), field(fieldLeaseID, removeField))
		next := acquire(t, l, request("n", fmt.Sprint("after ", last)))
		if next.Token <= uint64(last) || last == 7 && next.Token < first.Token || last == 1<<60 && next.Token != 1<<60+1 {
			t.Errorf("after %v came %d", last, next.Token)
		}
	}
}

// A holder whose expiry lies far ahead, as after a clock step, is replaced by a request that
// names its last renewal, and by no other.
func TestReplace(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, request("n", "a"))
	overwrite(t, coll, "n", field(fieldExpiresAt, time.Now().Add(1000*time.Hour)))
	shorter := lease
	shorter.TTL = time.Second
	if _, err := l.Renew(bounded(t), shorter); err != nil {
		t.Fatal(err)
	}
	if ttl := wantHeld(t, l, request("n", "b")).TTL; ttl != lease.TTL {
		t.Errorf("the TTL that waiters must wait for shrank to %v", ttl)
	}
	seen := wantHeld(t, l, request("n", "b")).Revision
	if seen.IsZero() {
		t.Fatal("no revision")
	}
	renewed := storedDocument(t, coll, "n").Lookup(fieldRenewedAt).DateTime()
	for storedDocument(t, coll, "n").Lookup(fieldRenewedAt).DateTime() == renewed { // a millisecond must pass
		if _, err := l.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
	}
	req := request("n", "b")
	req.Replace = seen
	req.Replace = wantHeld(t, l, req).Revision
	own := request("n", "a")
	own.Replace = req.Replace
	if again := acquire(t, l, own); again.Token != lease.Token {
		t.Errorf("the holder replaced itself: token %d after %d", again.Token, lease.Token)
	}
	req.Replace = wantHeld(t, l, request("n", "b")).Revision
	req.Data = []byte("$kid")
	next := acquire(t, l, req)
	if next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
	if data, _, err := l.ReadData(bounded(t), "n"); err != nil || string(data) != "$kid" {
		t.Errorf("data %q, %v", data, err)
	}
	left := wantHeld(t, l, request("n", "c")).Remaining
	if left > req.TTL {
		t.Errorf("%v left of a TTL of %v", left, req.TTL)
	}
}

// Each renewal has a revision of its own, also while the server's clock is behind an earlier
// renewal: a holder that renews is never taken for one that does not.
func TestRevisionNeverRepeats(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, request("n", "a"))
	ahead := time.Now().Add(time.Hour)
	overwrite(t, coll, "n", field(fieldRenewedAt, ahead)) // as after a step back by an hour
	seen := map[driver.Revision]bool{wantHeld(t, l, request("n", "b")).Revision: true}
	for what, renew := range map[string]func() error{
		"Renew":      func() error { return errOf(l.Renew(bounded(t), lease)) },
		"RenewBatch": func() error { return errOf(l.RenewBatch(bounded(t), []driver.Lease{lease}))[0] },
		"TryAcquire": func() error { _, err := l.TryAcquire(bounded(t), request("n", "a")); return err },
	} {
		for range 3 {
			if err := renew(); err != nil {
				t.Fatal(what, err)
			}
			revision := wantHeld(t, l, request("n", "b")).Revision
			if seen[revision] {
				t.Errorf("%s: a revision was seen before", what)
			}
			seen[revision] = true
			req := request("n", "b")
			req.Replace = revision
			if err := renew(); err != nil {
				t.Fatal(what, err)
			}
			seen[wantHeld(t, l, req).Revision] = true // the holder has renewed since
		}
	}
	if at := storedDocument(t, coll, "n").Lookup(fieldRenewedAt).Time(); !at.After(ahead) {
		t.Errorf("renewed at %v, not after %v", at, ahead)
	}
}

// A repeated acquire extends the lease, also in a record without the field broken.
func TestRepeatExtends(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	req := request("n", "a")
	lease := acquire(t, l, req)
	overwrite(t, coll, "n", field(fieldBroken, removeField))
	before := storedDocument(t, coll, "n").Lookup(fieldExpiresAt).DateTime()
	req.TTL = time.Hour
	if again := acquire(t, l, req); again.Token != lease.Token {
		t.Errorf("token %d after %d", again.Token, lease.Token)
	}
	if more := storedDocument(t, coll, "n").Lookup(fieldExpiresAt).DateTime() - before; more < time.Minute.Milliseconds() {
		t.Errorf("extended by %d ms", more)
	}
}

// The ID of the replaced lease is a literal, too.
func TestReplacedIDIsALiteral(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	acquire(t, l, request("n", "$owner"))
	req := request("n", "b")
	req.Replace = wantHeld(t, l, req).Revision
	acquire(t, l, req)
}

// A lease ends at its expiry, to the millisecond: one command sees one instant.
func TestExpiryIsExact(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, request("n", "a"))
	for _, c := range []struct {
		left int
		want string
	}{{1, "a"}, {0, "b"}} {
		try := append(setFields(field(fieldExpiresAt, expr("$add", serverNow, c.left))), acquirePipeline(asker{}, request("n", "b"),
			driver.DefaultHistory)...)
		if _, err := coll.UpdateOne(bounded(t), docOf(fieldName, "n"), try); err != nil {
			t.Fatal(err)
		}
		if got := storedDocument(t, coll, "n").Lookup(fieldLeaseID).StringValue(); got != c.want {
			t.Errorf("%d ms before its expiry the lock is %q's, want %q's", c.left, got, c.want)
		}
		now := time.Now()
		r := record{leaseID: "a", now: now, expiresAt: now.Add(time.Duration(c.left) * time.Millisecond)}
		if held := r.describe().State == driver.StateHeld; held != (c.left > 0) {
			t.Errorf("a record is shown as held: %v, %d ms before its expiry", held, c.left)
		}
	}
}

// The reply to a retried command may lack the projection's fields. Then the time left is
// unknown, not zero.
func TestReplyWithoutTheClock(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, request("n", "a"))
	r, err := decodeRecord(storedDocument(t, coll, "n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.describe(); got.State != driver.StateHeld || got.RemainingKnown || got.Remaining != 0 {
		t.Errorf("got %+v, want held for an unknown time", got)
	}
}
