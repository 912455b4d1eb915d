package azblob

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// look must succeed for all names.
func look(t *testing.T, l *Locker, names []string) []driver.Record {
	t.Helper()
	records, errs := l.InspectBatch(bounded(t), names)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return records
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%03d", prefix, i))
	}
	return names
}

// What is billed: a read for each of a few names; from 12 names on a page of a listing,
// as long as that can be cheaper.
func TestLookCalls(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	page := int32(10)
	l, wire := room.wired(func(c *config) { c.pageSize = &page })
	for _, name := range slices.Concat(numbered("a", 30), numbered("job.", 14)) {
		if err := l.create(bounded(t), l.target(name, "")); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, l, request("job.003"))
	acquire(t, l, request("job.013"))
	wire.take()
	for _, test := range []struct {
		what  string
		names []string
		lists int
		reads int
	}{
		{"no name", nil, 0, 0},
		{"a few names, one of them twice", []string{"job.003", "job.004", "never", "job.003"}, 0, 3},
		{"11 names", numbered("job.", 11), 0, 11},
		{"12 names that one page tells of, and no others", numbered("job.00", 12), 1, 0},
		{"14 names on two pages: the second is not worth its price", numbered("job.", 14), 1, 4},
		{"24 names on two pages", numbered("job.", 24), 2, 0},
		{"12 names nobody used", numbered("never", 12), 1, 0},
		{"names that begin like many others'", slices.Concat(numbered("a9", 6), numbered("job.", 6)), 1, 12},
	} {
		records := look(t, l, test.names)
		seen := wire.take()
		want := slices.Concat(slices.Repeat([]string{reqList}, test.lists), slices.Repeat([]string{reqRead}, test.reads))
		if !slices.Equal(seen, want) {
			t.Errorf("%s: sends %q, want %d lists and %d reads", test.what, seen, test.lists, test.reads)
		}
		for i, r := range records {
			held := test.names[i] == "job.003" || test.names[i] == "job.013"
			if r.Name != test.names[i] || held != (r.State == driver.StateHeld) || held == (r.State == driver.StateFree) {
				t.Errorf("%s: %q is shown as %v", test.what, test.names[i], r)
			}
		}
	}
}

// However it is asked, the answer is the same, and nobody is named whose lease it may
// not be.
func TestLookTells(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	names := numbered("n", 16)
	held := acquire(t, l, request(names[0]))
	release(t, l, acquire(t, l, request(names[1])))
	acquire(t, l, request(names[2]))
	if err := l.Break(bounded(t), names[2]); err != nil {
		t.Fatal(err)
	}
	before := acquire(t, l, request(names[3])) // and then another takes the lease, whose record is not there yet
	release(t, l, before)
	if err := l.take(bounded(t), l.target(names[3], newID()), held.TTL); err != nil {
		t.Fatal(err)
	}
	damaged := l.target(names[4], "")
	if err := l.create(bounded(t), damaged); err != nil {
		t.Fatal(err)
	}
	version := "77"
	if _, err := damaged.blob.SetMetadata(bounded(t), map[string]*string{keyVersion: &version}, nil); err != nil {
		t.Fatal(err)
	}
	names[5] = "\xff"
	for what, asked := range map[string][]string{"read": names[:7], "listed": names} {
		records, errs := l.InspectBatch(bounded(t), asked)
		for i, r := range records {
			single, err := l.Inspect(bounded(t), asked[i])
			if r.State != single.State || r.Token != 0 && r.Token != single.Token || r.Broken != single.Broken || (errs[i] == nil) != (err == nil) {
				t.Errorf("%s, %d: %+v, error %v; Inspect says %+v, %v", what, i, r, errs[i], single, err)
			}
			if r.State == driver.StateHeld && (r.Owner != "" || r.Token != 0 || r.TTL != 0 || r.RemainingKnown) {
				t.Errorf("%s, %d: %+v is more than can be known", what, i, r)
			}
			var op *driver.OpError
			if errs[i] != nil && (!errors.As(errs[i], &op) || op.Name != asked[i]) {
				t.Errorf("%s, %d: %v does not name its lock", what, i, errs[i])
			}
		}
		if records[0].State != driver.StateHeld || !records[2].Broken || records[3].State != driver.StateHeld || errs[4] == nil || !errors.Is(errs[5], driver.ErrInvalid) {
			t.Errorf("%s: %+v, %v", what, records, errs)
		}
	}
}

func TestLookFails(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, wire := room.wired()
	names := numbered("n", 30)
	acquire(t, l, request(names[7]))
	for _, test := range []struct {
		what    string
		request string
		f       fault
		failed  int // names
		reads   int
	}{
		{"one read is refused", reqRead, answer(http.StatusForbidden, "AuthorizationFailure"), 1, 5},
		{"the credential may not list", reqList, answer(http.StatusForbidden, "AuthorizationPermissionMismatch"), 0, 30},
		{"the list is refused", reqList, answer(http.StatusBadRequest, "InvalidInput"), 30, 0},
	} {
		asked := names
		if test.request == reqRead {
			asked = names[:5]
		}
		wire.take()
		wire.next(test.request, test.f)
		_, errs := l.InspectBatch(bounded(t), asked)
		failed := 0
		for i, err := range errs {
			if err == nil {
				continue
			}
			failed++
			wantUnknown(t, test.what, err)
			if op := (*driver.OpError)(nil); !errors.As(err, &op) || op.Name != asked[i] || strings.Contains(err.Error(), azuritetest.Key) {
				t.Errorf("%s: %v", test.what, err)
			}
		}
		if reads := wire.count(reqRead); failed != test.failed || reads != test.reads {
			t.Errorf("%s: %d names failed after %d reads, want %d after %d", test.what, failed, reads, test.failed, test.reads)
		}
	}
}

func TestLookWithoutAContainer(t *testing.T) {
	t.Parallel()
	service := azuritetest.Shared(t)
	room := &room{t: t, service: service, name: service.Fresh(t)}
	l, wire := room.wired()
	for n, want := range map[int][]string{2: {reqRead, reqRead}, 20: {reqList}} {
		for _, r := range look(t, l, numbered("n", n)) {
			if r.State != driver.StateFree {
				t.Errorf("%+v", r)
			}
		}
		if got := wire.take(); !slices.Equal(got, want) {
			t.Errorf("%d names: sends %q, want %q", n, got, want)
		}
	}
}

func TestCommonPrefix(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]string{"": {"a", "b"}, "a": {"a", "ab", "ac"}, "x/job=2": {"x/job=20", "x/job=2E"}, "same": {"same"}} {
		paths := map[string]string{}
		for _, path := range all {
			paths[path] = path
		}
		if got := commonPrefix(paths); got != want {
			t.Errorf("%q begin with %q, want %q", all, got, want)
		}
	}
}
