package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func sharedRequest(name, id string) driver.Request {
	req := request(name, id)
	req.Mode = driver.Shared
	return req
}

func inspect(t *testing.T, l *Locker, name string) driver.Record {
	t.Helper()
	r, err := l.Inspect(bounded(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request for a lock that no reader has had costs as much as without readers: one command, and its pipeline knows
// nothing of them.
func TestExclusiveLocksAskForNoReaders(t *testing.T) {
	t.Parallel()
	for v, expression := range acquireExpressions {
		if knows := bytes.Contains(expression, []byte(fieldReaders)); knows != v.readers {
			t.Errorf("%+v: the pipeline knows readers: %v", v, knows)
		}
	}
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"acquire", func() { acquire(t, l, request("n", "a")) }, []string{"findAndModify"}},
		{"release", func() {
			wantNil(t, l.Release(bounded(t), driver.Lease{Name: "n", ID: driver.NewLeaseID("a")}))
		}, []string{"update"}},
		{"reader", func() { acquire(t, l, sharedRequest("n", "b")) }, []string{"findAndModify"}},
		{"second reader", func() { acquire(t, l, sharedRequest("n", "c")) }, []string{"findAndModify"}},
		{"refused writer", func() { wantHeld(t, l, request("n", "d")) }, []string{"findAndModify"}},
		{"refused, waits", func() {
			req := request("n", "d")
			req.QueueFor = time.Minute
			wantHeld(t, l, req)
		}, []string{"findAndModify", "findAndModify"}},
		{"leave", func() { wantNil(t, l.Leave(bounded(t), me, []string{"n"})) }, []string{"findAndModify"}},
	} {
		log.take()
		if step.do(); !slices.Equal(commandNames(log.take()), step.want) {
			t.Errorf("%s sent other commands than %v", step.what, step.want)
		}
	}
}

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A record that an exclusive-only version has written gets readers, and then a writer again. It keeps its data, its token
// and its history on the way. The readers' lease IDs do not stay in it.
func TestReadersOfAnOldRecord(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	if _, err := coll.InsertOne(bounded(t), doc{
		field(fieldName, "n"), field(fieldVersion, 1), field(fieldOwner, "old"), field(fieldToken, int64(7)), field(fieldTTL, int64(1000)),
		field(fieldAcquiredAt, at), field(fieldRenewedAt, at), field(fieldExpiresAt, at.Add(time.Second)),
		field(fieldReleasedAt, at.Add(time.Second)), field(fieldBroken, false), field(fieldWrites, int64(0)),
		field(fieldData, binary([]byte("kept"))),
	}); err != nil {
		t.Fatal(err)
	}
	one, two := acquire(t, l, sharedRequest("n", "secret a")), acquire(t, l, sharedRequest("n", "secret b"))
	r := inspect(t, l, "n")
	if one.Token <= 7 || two.Token <= one.Token || len(r.Holders) != 2 || string(r.Data) != "kept" || r.Token != two.Token {
		t.Errorf("tokens %d and %d, record %+v", one.Token, two.Token, r)
	}
	records, errs := l.InspectBatch(bounded(t), me, []string{"n"})
	if errs[0] != nil || len(records[0].Holders) != 2 {
		t.Errorf("a batch read %+v, %v", records[0], errs[0])
	}
	for listed, err := range l.List(bounded(t), "n") {
		if err != nil || len(listed.Holders) != 2 {
			t.Errorf("listed %+v, %v", listed, err)
		}
	}
	if len(r.History) != 1 || r.History[0].Owner != "old" || r.History[0].End != driver.EndReleased {
		t.Errorf("the history is %+v", r.History)
	}
	wantNil(t, l.Release(bounded(t), one))
	wantNil(t, l.BreakNow(bounded(t), "n", driver.BreakToken(two.Token)))
	writer := acquire(t, l, request("n", "secret c"))
	r = inspect(t, l, "n")
	if writer.Token <= two.Token || len(r.Holders) > 0 || string(r.Data) != "kept" || r.Owner != writer.Owner {
		t.Errorf("the writer has token %d, the record is %+v", writer.Token, r)
	}
	var past []string
	for _, p := range r.History {
		past = append(past, fmt.Sprint(p.Owner, " ", p.Mode, " ", p.End))
	}
	want := []string{"owner of secret b shared freed", "owner of secret a shared released", "old exclusive released"}
	if !slices.Equal(past, want) {
		t.Errorf("the history is %v, want %v", past, want)
	}
	text := storedDocument(t, coll, "n").String()
	if strings.Contains(text, `"secret a"`) || strings.Contains(text, `"secret b"`) || !strings.Contains(text, `"secret c"`) {
		t.Error("a lease ID of a reader that has ended is in the record")
	}
}

// A record whose readers are damaged is not granted, repaired or freed: every operation names it and leaves it unchanged.
// No error has a lease ID.
func TestDamagedReaders(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	first := func(change any) bson.E {
		return field(fieldReaders, expr("$concatArrays", list{expr("$mergeObjects", expr("$arrayElemAt", ref(fieldReaders), 0), change)},
			expr("$slice", ref(fieldReaders), 1, 9)))
	}
	past := field(fieldExpiresAt, time.Now().Add(-time.Hour))
	for what, fields := range map[string][]bson.E{
		"no readers":        {field(fieldReaders, list{}), past},
		"readers missing":   {field(fieldReaders, removeField), past},
		"readers a text":    {field(fieldReaders, "x"), past},
		"a reader a text":   {field(fieldReaders, list{"x"}), past},
		"an expiry a text":  {first(docOf(readerExpires, "x")), past},
		"an expiry missing": {first(docOf(readerExpires, nil)), past},
		"a token a text":    {first(docOf(readerToken, "x")), past},
		"an ID a number":    {first(docOf(readerID, 5)), past},
		"another holder":    {field(fieldLeaseID, "secret holder"), past},
		"free with readers": {field(fieldLeaseID, removeField), past},
	} {
		lease := acquire(t, l, sharedRequest(what, "secret a"))
		other := acquire(t, l, sharedRequest(what, "secret b"))
		overwrite(t, coll, what, fields...)
		before := storedDocument(t, coll, what)
		_, readErr := l.TryAcquire(bounded(t), sharedRequest(what, "secret c"))
		_, writeErr := l.TryAcquire(bounded(t), request(what, "secret d"))
		for op, err := range map[string]error{
			"acquire shared": readErr, "acquire": writeErr, "inspect": errOf(l.Inspect(bounded(t), what)),
			"break": l.Break(bounded(t), what, driver.BreakToken(other.Token)),
		} {
			var bad *badRecordError
			switch {
			case errors.As(err, &bad) && bad.name == what && !strings.Contains(err.Error(), "secret"):
			case what == "free with readers" && op == "break" && err == nil: // there is nobody to break
			default:
				t.Errorf("%s, %s: got %v, want an error that names the record and no lease ID", what, op, err)
			}
		}
		if after := storedDocument(t, coll, what); !slices.Equal(before, after) {
			t.Errorf("%s: changed from %v to %v", what, before, after)
		}
		if strings.HasPrefix(what, "reader") || what == "another holder" {
			if err := l.Release(bounded(t), lease); !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("%s, release: %v", what, err)
			}
		}
	}
}

// storeReaders makes a record with many readers, and returns their leases.
func storeReaders(t *testing.T, coll *mongo.Collection, name string, n int) []driver.Lease {
	t.Helper()
	leases, readers := make([]driver.Lease, n), make(list, n)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range leases {
		leases[i] = driver.Lease{Name: name, ID: driver.NewLeaseID(fmt.Sprintf("%036d", i)), TTL: time.Minute, Token: uint64(i + 1),
			Mode: driver.Shared}
		readers[i] = doc{field(readerID, leases[i].ID.Reveal()), field(readerOwner, "a host with a name/12345"),
			field(readerToken, int64(i+1)), field(readerTTL, time.Minute.Milliseconds()), field(readerExpires, now.Add(time.Minute)),
			field(readerAcquired, now), field(readerRenewed, now)}
	}
	if _, err := coll.InsertOne(bounded(t), doc{
		field(fieldName, name), field(fieldVersion, sharedVersion), field(fieldLeaseID, sharedHolder), field(fieldOwner, "o"),
		field(fieldToken, int64(n)), field(fieldTTL, time.Minute.Milliseconds()), field(fieldExpiresAt, now.Add(time.Minute)),
		field(fieldAcquiredAt, now), field(fieldRenewedAt, now), field(fieldReaders, readers),
	}); err != nil {
		t.Fatal(err)
	}
	return leases
}

// A lock has up to 1,000 readers. One batch renews them in few commands, also together with those of other locks, and finds
// those that are lost. One batch releases them.
func TestThousandReaders(t *testing.T) {
	t.Parallel()
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	leases := storeReaders(t, coll, "n", driver.MaxHolders)
	former := driver.Lease{Name: "n", ID: driver.NewLeaseID("of a former holder"), TTL: time.Minute}
	waiter := sharedRequest("n", "one too many")
	waiter.QueueFor = time.Minute
	wantHeld(t, l, waiter)
	log.take()
	wantNil(t, l.Release(bounded(t), former))
	wantNil(t, errors.Join(l.ReleaseBatch(bounded(t), []driver.Lease{former, acquire(t, l, request("another", "a"))})...))
	if got := commandNames(log.take()); slices.Contains(got, "insert") {
		t.Errorf("sent %v: a reader who cannot join the others is woken", got)
	}
	wantNil(t, l.Leave(bounded(t), me, []string{"n"}))
	if size := len(storedDocument(t, coll, "n")); size > 200*driver.MaxHolders {
		t.Errorf("the record has %d bytes", size)
	}
	log.take()
	if err := errors.Join(errOf(l.RenewBatch(bounded(t), leases))...); err != nil {
		t.Fatal(err)
	}
	if got := commandNames(log.take()); len(got) != 4 {
		t.Errorf("sent %v, want two updates and two reads", got)
	}
	first, last := leases[0], leases[len(leases)-1]
	wantNil(t, l.Release(bounded(t), first))
	wantNil(t, l.Break(bounded(t), "n", driver.BreakToken(last.Token)))
	acquire(t, l, sharedRequest("n", "in its place"))
	wantHeld(t, l, sharedRequest("n", "one too many"))
	_, errs := l.RenewBatch(bounded(t), append(storeReaders(t, coll, "other", 3), leases...))
	for i, err := range errs {
		if lost := i == 3 || i == len(errs)-1; lost != errors.Is(err, driver.ErrLost) || !lost && err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	if err := errors.Join(l.ReleaseBatch(bounded(t), leases)...); err != nil {
		t.Fatal(err)
	}
	r := inspect(t, l, "n")
	if len(r.Holders) != 1 || r.Holders[0].Owner != "owner of in its place" || len(r.History) != driver.DefaultHistory {
		t.Errorf("the record is %+v", r)
	}
	if r := inspect(t, l, "other"); len(r.Holders) != 3 {
		t.Errorf("the other lock has %d readers", len(r.Holders))
	}
}

// A lease releases and renews what it holds in its own mode only, whatever its ID is.
func TestReadersAndWritersAreNotMistaken(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	reader := acquire(t, l, sharedRequest("read", "a"))
	for _, id := range []string{"a", sharedHolder} {
		other := driver.Lease{Name: "read", ID: driver.NewLeaseID(id), TTL: time.Minute}
		wantNil(t, l.Release(bounded(t), other))
		if err := errOf(l.Renew(bounded(t), other)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%q renews as a writer: %v", id, err)
		}
		wantHeld(t, l, request("read", id))
	}
	writer := acquire(t, l, request("write", "a"))
	asReader := writer
	asReader.Mode = driver.Shared
	wantNil(t, l.Release(bounded(t), asReader))
	if err := errOf(l.Renew(bounded(t), asReader)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a writer renews as a reader: %v", err)
	}
	for _, lease := range []driver.Lease{reader, writer} {
		wantNil(t, errOf(l.Renew(bounded(t), lease)))
	}
	asReader.Name = "read"
	if err := l.WriteData(bounded(t), reader, []byte("x"), grantRevision(reader)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a reader writes: %v", err)
	}
}

// A writer that leaves several queues at once wakes the readers behind it.
func TestLeavingWriterWakesReaders(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l, second := newTestLocker(t, coll), newTestLocker(t, coll)
	names := []string{"n1", "n2"}
	woken := make(chan string, 8)
	for _, name := range names {
		acquire(t, l, sharedRequest(name, "a"))
		writer, reader := request(name, "b"), sharedRequest(name, "c")
		writer.QueueFor, reader.QueueFor = time.Minute, time.Minute
		wantHeld(t, l, writer)
		defer second.Wake(name, me, func(w driver.Wakeup) {
			if w.Kind == (driver.Wakeup{}).Kind {
				woken <- name
			}
		})()
		if r := wantHeld(t, second, reader); r.Position != 2 {
			t.Errorf("the reader has position %d", r.Position)
		}
		awaitFollowed(t, second, name)
	}
	wantNil(t, l.Leave(bounded(t), me, names))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for got := map[string]bool{}; len(got) < len(names); {
		select {
		case name := <-woken:
			got[name] = true
		case <-ctx.Done():
			t.Fatalf("woken for %v alone", got)
		}
	}
}

// A writer leaves a queue, and the answer is an error of a fail-over, so the command is sent again, and finds nothing. The reader
// behind the writer is woken.
func TestLeaveSentAgainWakesReaders(t *testing.T) {
	t.Parallel()
	v := newVictim(t, nil)
	waiting := newTestLocker(t, v.base)
	acquire(t, v.Locker, sharedRequest("n", "holder"))
	writer, reader := request("n", "writer"), sharedRequest("n", "reader")
	writer.QueueFor, reader.QueueFor = time.Minute, time.Minute
	wantHeld(t, v.Locker, writer)
	woken := wokenBy(t, waiting, "n")
	wantHeld(t, waiting, reader)
	awaitFollowed(t, waiting, "n")
	v.fail(t, docOf("times", 1), list{"findAndModify"}, field("writeConcernError",
		doc{field("code", codeInterruptedByStateChange), field("errmsg", "the primary changes")}))
	wantNil(t, v.Leave(bounded(t), me, []string{"n"}))
	wantWoken(t, woken, "by the writer that left")
}

// A call leaves a queue, and both of its commands fail. The next call finds no position. The reader behind the writer is woken.
func TestLeaveAfterAFailedOneWakesReaders(t *testing.T) {
	t.Parallel()
	v := newVictim(t, nil)
	waiting := newTestLocker(t, v.base)
	acquire(t, v.Locker, sharedRequest("n", "holder"))
	writer, reader := request("n", "writer"), sharedRequest("n", "reader")
	writer.QueueFor, reader.QueueFor = time.Minute, time.Minute
	wantHeld(t, v.Locker, writer)
	woken := wokenBy(t, waiting, "n")
	wantHeld(t, waiting, reader)
	awaitFollowed(t, waiting, "n")
	v.fail(t, docOf("times", 2), list{"findAndModify", "update"}, field("writeConcernError",
		doc{field("code", codeInterruptedByStateChange), field("errmsg", "the primary changes")}))
	if err := v.Leave(bounded(t), me, []string{"n"}); err == nil || len(storedQueue(t, v.base, "n")) != 1 {
		t.Fatalf("Leave: %v, the queue is %v", err, storedQueue(t, v.base, "n"))
	}
	select {
	case <-woken:
		t.Fatal("woken by the call that failed")
	default:
	}
	wantNil(t, v.Leave(bounded(t), me, []string{"n"}))
	wantWoken(t, woken, "by the call that found nothing")
}

// A fail-over can forget a reader's renewal that a waiter has seen. The next renewal has its number, and is another.
func TestReplaceAfterAForgottenRenewal(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, sharedRequest("n", "a"))
	renew := func() driver.Revision {
		t.Helper()
		at := func() time.Time { return inspect(t, l, "n").Holders[0].RenewedAt }
		for before := at(); at().Equal(before); { // a millisecond must pass
			if _, err := l.Renew(bounded(t), lease); err != nil {
				t.Fatal(err)
			}
		}
		return inspect(t, l, "n").Revision
	}
	number := storedDocument(t, coll, "n").Lookup(fieldRenewals).AsInt64()
	seen := renew()
	overwrite(t, coll, "n", field(fieldRenewals, number))
	now := renew()
	req := request("n", "b")
	req.Replace = seen
	if lease, err := l.TryAcquire(bounded(t), req); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("it takes the lock from a living reader: %v, %v", lease, err)
	}
	req.Replace = now
	acquire(t, l, req)
}

// A refusal and a read show the same revision of readers, and the one of a refusal replaces them.
func TestRevisionOfARefusalAmongReaders(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	first := acquire(t, l, sharedRequest("n", "a"))
	acquire(t, l, sharedRequest("n", "b")) // the latest grant, whose time is ts
	time.Sleep(5 * time.Millisecond)
	if _, err := l.Renew(bounded(t), first); err != nil { // by another than the latest: ts stays
		t.Fatal(err)
	}
	writer := request("n", "c")
	if tried := wantHeld(t, l, writer).Revision; tried != inspect(t, l, "n").Revision {
		t.Errorf("a try is shown %q, a read %q", tried.Mark(), inspect(t, l, "n").Revision.Mark())
	}
	writer.QueueFor = time.Minute
	waits := wantHeld(t, l, writer).Revision
	if waits != inspect(t, l, "n").Revision {
		t.Errorf("a waiter is shown %q, a read %q", waits.Mark(), inspect(t, l, "n").Revision.Mark())
	}
	// Promise 10: a waiter of a small process sees refusals only. Nobody renews: it takes the lock over.
	writer.Replace = waits
	acquire(t, l, writer)
}

// The server has applied a request and answers that the write is not certain, so the Go driver repeats it. The answer to the
// repetition is the stored document, without what the projection computes: the reader, and the position.
func TestRequestThatTheDriverRepeats(t *testing.T) {
	t.Parallel()
	v := newVictim(t, nil)
	repeated := func() {
		v.fail(t, docOf("times", 1), list{"findAndModify"}, field("errorLabels", list{"RetryableWriteError"}),
			field("writeConcernError", doc{field("code", codeWriteConcernTimeout), field("errmsg", "timed out")}))
	}
	for _, what := range []string{"makes the record", "changes the record"} {
		repeated()
		lease := acquire(t, v.Locker, sharedRequest("n", what))
		if r := inspect(t, v.Locker, "n"); len(r.Holders) != 1 || r.Holders[0].Token != lease.Token {
			t.Errorf("%s: the token is %d, the readers are %+v", what, lease.Token, r.Holders)
		}
		wantNil(t, v.Release(bounded(t), lease))
	}
	acquire(t, v.Locker, request("n", "holder"))
	for _, waiter := range []driver.Request{sharedRequest("n", "reader"), request("n", "writer")} {
		waiter.QueueFor = time.Minute
		repeated()
		if r := wantHeld(t, v.Locker, waiter); r.Position != 1 || !r.RemainingKnown {
			t.Errorf("a waiter, %v, has position %d, and the lease %v left", waiter.Mode, r.Position, r.Remaining)
		}
		wantNil(t, v.Leave(bounded(t), me, []string{"n"}))
	}
}
