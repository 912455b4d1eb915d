package mongo

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// One command renews up to 500 leases of one TTL; the lost ones among them are
// found and the others stay renewed.
func TestRenewBatch(t *testing.T) {
	var log commandLog
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor())))
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	now := time.Now()
	leases := make([]holdfast.Lease, batchChunk+40)
	documents := make([]any, len(leases))
	for i := range leases {
		leases[i] = holdfast.Lease{Name: fmt.Sprint("n-", i), ID: fmt.Sprint("id-", i), TTL: time.Minute}
		documents[i] = doc{{Key: "_id", Value: leases[i].Name}, {Key: "v", Value: 1}, {Key: "kid", Value: leases[i].ID}, {Key: "token", Value: int64(1)},
			{Key: "ttl", Value: int64(1)}, {Key: "expiresAt", Value: now.Add(-time.Hour)}}
	}
	if _, err := coll.InsertMany(ctx, documents); err != nil {
		t.Fatal(err)
	}
	log.take()
	if err := errors.Join(l.RenewBatch(ctx, leases)...); err != nil {
		t.Fatal(err)
	}
	if got := names(log.take()); !slices.Equal(got, []string{"update", "update"}) {
		t.Errorf("sent %v, want two updates", got)
	}

	const taken, broken, removed, freed, damaged, invalid, twice, other = 3, 5, 8, 13, 21, 34, 55, 89
	change(t, coll, "n-3", field(fieldKid, "of another"))
	change(t, coll, "n-5", field(fieldBroken, true))
	if _, err := coll.DeleteOne(ctx, is(fieldName, "n-8")); err != nil {
		t.Fatal(err)
	}
	change(t, coll, "n-13", field(fieldKid, nothing))
	change(t, coll, "n-21", field(fieldExpiresAt, 1))
	leases[invalid].TTL = time.Microsecond
	leases[twice] = leases[twice-1]
	leases[other].TTL = time.Hour
	untouched := map[string]bson.Raw{"n-3": nil, "n-5": nil, "n-13": nil, "n-21": nil}
	for name := range untouched {
		untouched[name] = stored(t, coll, name)
	}
	errs := l.RenewBatch(ctx, leases)
	for name, before := range untouched {
		if after := stored(t, coll, name); !slices.Equal(before, after) {
			t.Errorf("changed from %v to %v", before, after)
		}
	}
	var bad *badRecordError
	for i, err := range errs {
		switch i {
		case taken, broken, removed, freed:
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%d: got %v, want lost", i, err)
			}
		case damaged:
			if !errors.As(err, &bad) {
				t.Errorf("%d: got %v, want an error that names the record", i, err)
			}
		case invalid:
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%d: got %v, want invalid", i, err)
			}
		default:
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		var op *holdfast.OpError
		if err != nil && (!errors.As(err, &op) || op.Name != leases[i].Name) {
			t.Errorf("%d: %v does not name its lock", i, err)
		}
	}
	if left := stored(t, coll, "n-89").Lookup(fieldExpiresAt).Time().Sub(now); left < 59*time.Minute {
		t.Errorf("a lease of an hour got %v", left)
	}
	if left := stored(t, coll, "n-88").Lookup(fieldExpiresAt).Time().Sub(now); left > 10*time.Minute {
		t.Errorf("a lease of a minute got %v", left)
	}
}

// The lost leases of a batch are looked at side by side, and all within the time
// limit of one command.
func TestRenewBatchOfLostLeases(t *testing.T) {
	g := newSharedGuarded(t)
	l := newTestLocker(t, g.locker.writes, WithCommandTimeout(time.Second))
	leases := []holdfast.Lease{acquire(t, l, request("kept", "secret kept"))}
	for i := range 400 {
		leases = append(leases, holdfast.Lease{Name: fmt.Sprint("n", i), ID: fmt.Sprint("secret ", i), TTL: time.Minute})
	}
	failing(t, g, "find", 10_000, bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 300}})
	start := time.Now()
	errs := l.RenewBatch(bounded(t), leases)
	if took := time.Since(start); took > 5*time.Second { // one by one two minutes, without a limit to them all 8 s
		t.Errorf("it took %v", took)
	}
	lost := 0
	for _, err := range errs[1:] {
		if errors.Is(err, holdfast.ErrLost) {
			lost++
		} else {
			wantUnknown(t, err)
		}
	}
	if errs[0] != nil || lost < 2 {
		t.Errorf("kept: %v; %d are known to be lost", errs[0], lost)
	}
}

func TestChunks(t *testing.T) {
	var leases []holdfast.Lease
	for i := range 2*batchChunk + 1 {
		leases = append(leases, holdfast.Lease{Name: fmt.Sprint(i), ID: "id", TTL: time.Duration(1+i%2) * time.Second})
	}
	leases = append(leases, leases[0], holdfast.Lease{Name: "invalid", ID: "id"}, holdfast.Lease{Name: "no ID", TTL: time.Second})
	seen := map[int]bool{}
	var sizes []int
	for _, chunk := range chunks(leases) {
		sizes = append(sizes, len(chunk))
		for _, i := range chunk {
			if seen[i] || leases[i].TTL != leases[chunk[0]].TTL {
				t.Errorf("%d is in a wrong chunk, or in two", i)
			}
			seen[i] = true
		}
	}
	if want := []int{500, 500, 1, 1, 1, 1}; len(seen) != len(leases) || !slices.Equal(sizes, want) {
		t.Errorf("%d of %d leases in chunks of %v, want %v", len(seen), len(leases), sizes, want)
	}
}

// BenchmarkRenewBatch renews 10,000 leases at a time.
func BenchmarkRenewBatch(b *testing.B) {
	coll := mongotest.Collection(b)
	l, err := New(b.Context(), coll)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	leases := make([]holdfast.Lease, 10_000)
	documents := make([]any, len(leases))
	for i := range leases {
		leases[i] = holdfast.Lease{Name: fmt.Sprint("n-", i), ID: fmt.Sprint("id-", i), TTL: time.Minute}
		documents[i] = doc{{Key: "_id", Value: leases[i].Name}, {Key: "v", Value: 1}, {Key: "kid", Value: leases[i].ID},
			{Key: "token", Value: int64(1)}, {Key: "expiresAt", Value: time.Now()}}
	}
	if _, err := coll.InsertMany(b.Context(), documents); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(l.RenewBatch(b.Context(), leases)...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(leases)), "µs/lease")
}
