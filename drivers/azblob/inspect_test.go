package azblob

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// inspectAll fails the test unless it succeeds for all names.
func inspectAll(t *testing.T, l *Locker, names []string) []driver.Record {
	t.Helper()
	records, errs := l.InspectBatch(bounded(t), "", names)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return records
}

func numberedNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%03d", prefix, i))
	}
	return names
}

// Every request is billed: one read for each of a few names; from 12 names on a listing, as
// long as it can be cheaper.
func TestInspectBatchRequests(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	page := int32(10)
	l, sent := store.lockerWithFaults(func(c *config) { c.pageSize = &page })
	for _, name := range slices.Concat(numberedNames("a", 30), numberedNames("job.", 14)) {
		if err := l.createBlob(bounded(t), l.lockBlob(name, "")); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, l, request("job.003"))
	acquire(t, l, request("job.013"))
	sent.take()
	for _, test := range []struct {
		what  string
		names []string
		lists int
		reads int
	}{
		{"no name", nil, 0, 0},
		{"a few names, one of them twice", []string{"job.003", "job.004", "never", "job.003"}, 0, 3},
		{"11 names", numberedNames("job.", 11), 0, 11},
		{"12 names on one page", numberedNames("job.00", 12), 1, 0},
		{"14 names on two pages: reads are cheaper than the second", numberedNames("job.", 14), 1, 4},
		{"24 names on two pages", numberedNames("job.", 24), 2, 0},
		{"12 unused names", numberedNames("never", 12), 1, 0},
		{"names with the prefix of many others", slices.Concat(numberedNames("a9", 6), numberedNames("job.", 6)), 1, 12},
	} {
		records := inspectAll(t, l, test.names)
		seen := sent.take()
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

// Reads and listings give the same result, and never name an owner to whom the lease may not
// belong.
func TestInspectBatchAgreesWithInspect(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	names := numberedNames("n", 16)
	held := acquire(t, l, request(names[0]))
	used(t, l, names[1])
	acquire(t, l, request(names[2]))
	if err := l.Break(bounded(t), names[2], driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	before := acquire(t, l, request(names[3])) // then another takes the lease and has not written its record
	release(t, l, before)
	if err := l.takeLease(bounded(t), l.lockBlob(names[3], newID()), held.TTL); err != nil {
		t.Fatal(err)
	}
	damaged := l.lockBlob(names[4], "")
	if err := l.createBlob(bounded(t), damaged); err != nil {
		t.Fatal(err)
	}
	version := "77"
	if _, err := damaged.blob.SetMetadata(bounded(t), map[string]*string{keyVersion: &version}, nil); err != nil {
		t.Fatal(err)
	}
	names[5] = "\xff"
	for what, asked := range map[string][]string{"read": names[:7], "listed": names} {
		records, errs := l.InspectBatch(bounded(t), "", asked)
		for i, r := range records {
			single, err := l.Inspect(bounded(t), asked[i])
			if i == 3 { // the last grant on record, which is not the holder's
				single.Token = before.Token
			}
			if r.State != single.State || r.Token != single.Token || r.Broken != single.Broken || (errs[i] == nil) != (err == nil) {
				t.Errorf("%s, %d: %+v, error %v; Inspect says %+v, %v", what, i, r, errs[i], single, err)
			}
			if r.State == driver.StateHeld && (r.Owner != "" || r.TTL != 0 || r.RemainingKnown) {
				t.Errorf("%s, %d: %+v is more than can be known", what, i, r)
			}
			var op *driver.OpError
			if errs[i] != nil && (!errors.As(errs[i], &op) || op.Name != asked[i]) {
				t.Errorf("%s, %d: %v does not name its lock", what, i, errs[i])
			}
		}
		if records[0].State != driver.StateHeld || !records[2].Broken || records[3].State != driver.StateHeld || errs[4] == nil ||
			!errors.Is(errs[5], driver.ErrInvalid) {
			t.Errorf("%s: %+v, %v", what, records, errs)
		}
	}
}

func TestInspectBatchFails(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, sent := store.lockerWithFaults()
	names := numberedNames("n", 30)
	acquire(t, l, request(names[7]))
	for _, test := range []struct {
		what    string
		request string
		f       fault
		failed  int // names
		reads   int
		denied  bool
	}{
		{"one read is refused", reqRead, respond(http.StatusForbidden, "AuthorizationFailure"), 1, 5, true},
		{"the credential may not list", reqList, respond(http.StatusForbidden, "AuthorizationPermissionMismatch"), 0, 30, false},
		{"the list is refused", reqList, respond(http.StatusBadRequest, "InvalidInput"), 30, 0, false},
	} {
		asked := names
		if test.request == reqRead {
			asked = names[:5]
		}
		sent.take()
		sent.next(test.request, test.f)
		_, errs := l.InspectBatch(bounded(t), "", asked)
		failed := 0
		for i, err := range errs {
			if err == nil {
				continue
			}
			failed++
			if errors.Is(err, driver.ErrDenied) != test.denied || driver.OutcomeKnown(err) != test.denied {
				t.Errorf("%s: denied %v: %v", test.what, test.denied, err)
			}
			if op := (*driver.OpError)(nil); !errors.As(err, &op) || op.Name != asked[i] || strings.Contains(err.Error(), azuritetest.Key) {
				t.Errorf("%s: %v", test.what, err)
			}
		}
		if reads := sent.count(reqRead); failed != test.failed || reads != test.reads {
			t.Errorf("%s: %d names failed after %d reads, want %d after %d", test.what, failed, reads, test.failed, test.reads)
		}
	}
}

func TestInspectBatchWithoutAContainer(t *testing.T) {
	t.Parallel()
	service := azuritetest.Shared(t)
	store := &testContainer{t: t, service: service, name: service.Fresh(t)}
	l, sent := store.lockerWithFaults()
	for n, want := range map[int][]string{2: {reqRead, reqRead}, 20: {reqList}} {
		for _, r := range inspectAll(t, l, numberedNames("n", n)) {
			if r.State != driver.StateFree {
				t.Errorf("%+v", r)
			}
		}
		if got := sent.take(); !slices.Equal(got, want) {
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

// A lease state that is missing or not known here is reported as unknown.
func TestMissingLeaseState(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	held := acquire(t, l, request("n"))
	for _, word := range []string{"", "resting"} {
		w.all(reqDownload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil {
				resp.Header.Del("x-ms-lease-state")
				if word != "" {
					resp.Header.Set("x-ms-lease-state", word)
				}
			}
			return resp, err
		})
		w.all(reqList, rewrite("<LeaseState>leased</LeaseState>", "<LeaseState>"+word+"</LeaseState>"))
		if r := inspect(t, l, "n"); r.State != driver.StateUnknown || r.Owner != "" || r.Token != held.Token {
			t.Errorf("state %q: %+v", word, r)
		}
		for r, err := range l.List(bounded(t), "") {
			if err != nil || r.State != driver.StateUnknown || r.Owner != "" {
				t.Errorf("state %q, listed: %+v, %v", word, r, err)
			}
		}
	}
}
