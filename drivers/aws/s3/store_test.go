package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// A write whose condition does not hold is a conflict, whatever status a store has for it: 412, 409, or 404 if the object is missing.
func TestConflict(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	s, ctx := l.store, t.Context()
	first, err := s.Put(ctx, "k", []byte("1"), "")
	if err != nil || first.Now.IsZero() {
		t.Fatal(first, err)
	}
	second, err := s.Put(ctx, "k", []byte("2"), first.Version)
	if err != nil || second.Version == first.Version {
		t.Fatal(second, err)
	}
	conflicts := func(what, key, version string) {
		t.Helper()
		if _, err := s.Put(ctx, key, []byte("3"), version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	conflicts("there is a value", "k", "")
	conflicts("an old version", "k", first.Version)
	conflicts("a missing object, 404", "absent", first.Version)
	for _, fault := range []s3test.Fault{{Status: 412, Code: "PreconditionFailed"}, {Status: 409, Code: "ConditionalRequestConflict"}} {
		server.SetFaults(func(s3test.Request) s3test.Fault { return fault })
		conflicts(fault.Code, "absent", first.Version)
	}
	server.SetFaults(nil)
	if v, err := s.Get(ctx, "k"); err != nil || string(v.Data) != "2" || v.Version != second.Version || v.Now.IsZero() {
		t.Errorf("the value is %+v, %v", v, err)
	}
	if v, err := s.Get(ctx, "absent"); err != nil || v.Version != "" || v.Now.IsZero() {
		t.Errorf("a missing value is %+v, %v", v, err)
	}
	server.SetFaults(func(s3test.Request) s3test.Fault { return s3test.Fault{Status: 404, Code: "NoSuchBucket"} })
	if _, err := s.Put(ctx, "absent", []byte("1"), first.Version); errors.Is(err, cas.ErrConflict) {
		t.Error("a missing bucket counts as a missing object")
	}
}

// While another write of the object is under way S3 answers 409. The value is read again, and the lock granted if it is free.
func TestConflictIsReadAgain(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	refused := 0
	server.SetFaults(func(r s3test.Request) s3test.Fault {
		if r.Action == "PutObject" && refused < 3 {
			refused++
			return s3test.Fault{Status: 409, Code: "ConditionalRequestConflict"}
		}
		return s3test.Fault{}
	})
	acquire(t, l, "n", "a", 30*time.Second)
	if gets := server.Requests("GetObject"); refused != 3 || gets != 4 {
		t.Errorf("%d refusals, %d reads", refused, gets)
	}
}

// What passes is no lasting error: the outcome of a write is unknown, and the request is made once only.
func TestBusy(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	lease := acquire(t, l, "n", "a", 30*time.Second)
	for _, fault := range []s3test.Fault{{Status: 503, Code: "SlowDown"}, {Status: 500, Code: "InternalError"}, {Status: 429}, {Status: 502},
		{Status: 400, Code: "RequestTimeout"}, {Status: 400, Code: "ThrottlingException"}, {Status: 307, Code: "TemporaryRedirect",
			Header: http.Header{"Location": {"/elsewhere"}}}} {
		server.SetFaults(func(s3test.Request) s3test.Fault { return fault })
		before := server.Requests("GetObject")
		if _, err := l.Inspect(t.Context(), "n"); err == nil || driver.OutcomeKnown(err) || server.Requests("GetObject") != before+1 {
			t.Errorf("%v: %v after %d requests", fault, err, server.Requests("GetObject")-before)
		}
		before = server.Requests("PutObject")
		if _, err := l.store.Put(t.Context(), "n", nil, `"1"`); err == nil || driver.OutcomeKnown(err) || errors.Is(err, cas.ErrConflict) ||
			server.Requests("PutObject") != before+1 {
			t.Errorf("%v: a write: %v after %d requests", fault, err, server.Requests("PutObject")-before)
		}
		server.SetFaults(nil)
		var err error
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatalf("after %v: %v", fault, err)
		}
	}
}

// A hold survives an outage that is shorter than its lease, and the answers that are lost or come twice meanwhile.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	proxy := castest.NewProxy(t, server.Addr())
	l := open(t, configFor("http://"+proxy.Addr()))
	lease := acquire(t, l, "n", "a", 60*time.Second)
	for _, mode := range []castest.Mode{castest.Refuse, castest.LoseAnswers, castest.Stall, castest.Double} {
		proxy.Set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		next, err := l.Renew(ctx, lease)
		cancel()
		if err == nil {
			lease = next
		} else if driver.OutcomeKnown(err) || strings.Contains(err.Error(), s3test.KeyID) {
			t.Errorf("mode %d: %v", mode, err)
		}
		if mode == castest.Double {
			if _, err := l.Inspect(t.Context(), "absent"); err != nil {
				t.Errorf("doubled requests: %v", err)
			}
		}
		proxy.Set(castest.Pass)
		proxy.Cut() // the connection of a doubled request
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatalf("after mode %d: %v", mode, err)
		}
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// A write that the store does twice, or does without an answer, is granted once, and its holder is known.
func TestDoubtfulWrites(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]s3test.Fault{"twice": {Twice: true}, "unanswered": {Unanswered: true}} {
		l, server, _ := fixed(t)
		writes := 0
		server.SetFaults(func(r s3test.Request) s3test.Fault {
			if r.Action != "PutObject" {
				return s3test.Fault{}
			}
			if writes++; writes%2 == 0 {
				return s3test.Fault{}
			}
			return fault
		})
		lease := acquire(t, l, "n", "a", 30*time.Second)
		if _, err := try(t, l, "n", "b", 30*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: a second holder: %v", what, err)
		}
		lease, err := l.Renew(t.Context(), lease)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		next := acquire(t, l, "n", "b", 30*time.Second)
		if present, ok := cas.ReadPresent(server.Object("n")); !ok || present.Grants != 2 || next.Token <= lease.Token {
			t.Errorf("%s: %+v, the token %d after %d", what, present, next.Token, lease.Token)
		}
	}
}

// An object that somebody has edited or that belongs to others is never written, and one that was deleted ends its hold.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	lease := acquire(t, l, "n", "a", 10*time.Second)
	record := string(server.Object("n"))
	for what, body := range map[string]string{"a text": "hello", "nothing": "", "half a record": record[:len(record)/2],
		"another lock's": strings.Replace(record, `"name":"n"`, `"name":"m"`, 1)} {
		server.SetObject("n", []byte(body))
		_, err := try(t, l, "n", "b", 10*time.Second)
		if _, renewed := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrDamaged) || !errors.Is(renewed, driver.ErrDamaged) {
			t.Errorf("%s: %v, %v", what, err, renewed)
		}
		if string(server.Object("n")) != body {
			t.Errorf("%s was overwritten", what)
		}
	}
	server.SetObject("n", []byte(strings.Repeat("x", 9<<20)))
	if _, err := try(t, l, "n", "b", 10*time.Second); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a large object: %v", err)
	}
	server.SetObject("n", []byte(record))
	var err error
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	server.SetObject("n", nil)
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal of what was deleted: %v", err)
	}
	if server.Object("n") != nil {
		t.Error("a lost lease was written")
	}
}

// An answer without what every object store sends is none: a proxy's page must not count as a record.
func TestNoObjectStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ status int }{{200}, {404}} {
		l, server, _ := fixed(t)
		server.SetFaults(func(s3test.Request) s3test.Fault { return s3test.Fault{Status: c.status, Code: "Page"} })
		_, get := l.store.Get(t.Context(), "n")
		_, put := l.store.Put(t.Context(), "n", nil, `"1"`)
		_, _, list := l.store.List(t.Context(), "", "")
		for what, err := range map[string]error{"Get": get, "Put": put, "List": list} {
			if err == nil || driver.OutcomeKnown(err) || errors.Is(err, cas.ErrConflict) {
				t.Errorf("%d: %s: %v", c.status, what, err)
			}
		}
	}
}

// A key of another program that XML cannot have hides no lock. Where the list goes on is not guessed.
func TestListWithUnreadableKeys(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t)
	page := func(rest string) {
		server.SetFaults(func(s3test.Request) s3test.Fault {
			return s3test.Fault{Status: http.StatusOK, Message: `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>` +
				"<Contents><Key>a&#x1;b</Key></Contents><Contents><Key>a&#2;b</Key></Contents><Contents><Key>\x03\xff</Key></Contents>" +
				"<Contents><Key>&#xA;&#xfffe;</Key></Contents><Contents><Key>a%20b</Key></Contents>" + rest + "</ListBucketResult>"}
		})
	}
	page("<NextContinuationToken>n</NextContinuationToken><IsTruncated>true</IsTruncated>")
	items, next, err := l.store.List(t.Context(), "", "")
	if err != nil || len(items) != 1 || items[0].Key != "a%20b" || next != "n" {
		t.Errorf("%v, %q, %v", items, next, err)
	}
	page("<NextContinuationToken>a&#x1;b</NextContinuationToken><IsTruncated>true</IsTruncated>")
	if _, _, err := l.store.List(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "control character") {
		t.Errorf("a token: %v", err)
	}
}

// A list has all pages of this prefix, and nothing that lies beside it or deeper.
func TestList(t *testing.T) {
	t.Parallel()
	l, server, _ := fixed(t, WithPrefix("team"))
	want := pageSize + 5
	for i := range want {
		server.SetObject(fmt.Sprintf("team/k%04d", i), []byte("x"))
	}
	for _, other := range []string{"team/deeper/k", "team", "k", "team2/k"} {
		server.SetObject(other, []byte("x"))
	}
	for prefix, want := range map[string]int{"": want, "k": want, "k000": 10, "x": 0} {
		var got []string
		pages := 0
		for page := ""; ; pages++ {
			items, next, err := l.store.List(t.Context(), prefix, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items {
				got = append(got, item.Key)
			}
			if page = next; next == "" {
				break
			}
		}
		if len(got) != want || want > 0 && got[0] != "k0000" || pages != want/pageSize {
			t.Errorf("%q: %d keys on %d more pages, want %d", prefix, len(got), pages, want)
		}
	}
}

// A stamp that is later than the reading server's time, and answers by two clocks, say that the clocks of the servers disagree. Then the
// lock of a dead holder is taken over only when no renewal was seen for its whole TTL.
func TestClocksDisagree(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*s3test.Server, func() time.Time){
		"stamps": func(s *s3test.Server, now func() time.Time) {
			s.SetStamps(func() time.Time { return now().Add(20 * time.Second) })
		},
		"answers": func(s *s3test.Server, now func() time.Time) {
			s.SetClock(func() time.Time { return now().Add(20 * time.Second) })
		},
	} {
		l, server, clock := fixed(t)
		if what == "stamps" {
			spoil(server, clock.Now)
		}
		acquire(t, l, "n", "a", 10*time.Second)
		if what == "answers" {
			spoil(server, clock.Now)
		}
		if v, err := l.store.Get(t.Context(), "n"); err != nil || !v.Unsure {
			t.Errorf("%s: unsure is %v, %v", what, v.Unsure, err)
		}
		if _, err := try(t, l, "n", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: %v", what, err)
		}
		clock.Advance(httpstore.Distrust + time.Minute)
		if v, err := l.store.Get(t.Context(), "n"); err != nil || v.Unsure {
			t.Errorf("%s: later unsure is %v, %v", what, v.Unsure, err)
		}
		acquire(t, l, "n", "b", 10*time.Second)
	}
}

// The header Date may be two seconds old when a lock is granted, and right when another asks for it. The lease lasts all the same.
func TestOldDate(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	clock.Advance(clock.Now().Truncate(time.Second).Add(1900 * time.Millisecond).Sub(clock.Now()))
	server.SetStamps(clock.Now)
	server.SetClock(func() time.Time { return clock.Now().Add(-time.Second) })
	acquire(t, l, "n", "a", 10*time.Second)
	server.SetClock(clock.Now)
	clock.Advance(10*time.Second - 50*time.Millisecond)
	if _, err := try(t, l, "n", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("before the end of the lease: %v", err)
	}
	clock.Advance(httpstore.MaxDateAge)
	acquire(t, l, "n", "b", 10*time.Second)
}

// A held lock costs one request for a renewal, a release and a write of data; an acquisition two. The page has these numbers.
func TestRequests(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	counted := func(c *settings) { c.sent = func() { sent.Add(1) } }
	config := configFor(s3test.Start(t).Endpoint())
	l := open(t, config, counted)
	costs := func(what string, want int32, call func() error) {
		t.Helper()
		before := sent.Load()
		if err := call(); err != nil || sent.Load()-before != want {
			t.Errorf("%s: %d requests, want %d, %v", what, sent.Load()-before, want, err)
		}
	}
	costs("open a new bucket", 3*4*14, func() error {
		l, err := New(t.Context(), config, s3test.Bucket, counted)
		if err != nil {
			return err
		}
		return l.Close(t.Context())
	})
	var lease driver.Lease
	costs("acquire", 2, func() error { lease = acquire(t, l, "n", "a", 30*time.Second); return nil })
	costs("renew", 1, func() (err error) { lease, err = l.Renew(t.Context(), lease); return err })
	costs("refused", 1, func() error {
		if _, err := try(t, l, "n", "b", 30*time.Second); !errors.Is(err, driver.ErrHeld) {
			return err
		}
		return nil
	})
	costs("release", 1, func() error { return l.Release(t.Context(), lease) })
}
