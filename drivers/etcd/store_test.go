package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// One write of several with a condition is done. The refusal brings the present value, and so does a read.
func TestPut(t *testing.T) {
	t.Parallel()
	s := storeAt(t, etcdtest.URL(t))
	first, err := s.Put(t.Context(), "k", []byte("first"), "")
	if err != nil || first.Version == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	revision, _, _ := parseVersion(first.Version)
	for _, version := range []string{"", versionOf(revision+1, []byte("first")), versionOf(revision, []byte("other")), versionOf(1, nil)} {
		var refused *cas.RefusedError
		_, err := s.Put(t.Context(), "k", []byte("second"), version)
		if !errors.As(err, &refused) || string(refused.Present.Data) != "first" || refused.Present.Version != first.Version {
			t.Errorf("version %q: %v, %+v", version, err, refused)
		}
	}
	for _, version := range []string{"other", ":", "0:first", "x:first"} {
		if _, err := s.Put(t.Context(), "k", []byte("second"), version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("version %q: %v", version, err)
		}
	}
	for _, version := range []string{first.Version, "0:", "0:first"} {
		if _, err := s.Put(t.Context(), "missing", []byte("second"), version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("the version %q of a key without a value: %v", version, err)
		}
	}
	if v, err := s.Get(t.Context(), "missing"); err != nil || v.Version != "" {
		t.Errorf("%+v, %v, want no value", v, err)
	}
	if v, err := s.Get(t.Context(), "k"); err != nil || v.Version != first.Version || string(v.Data) != "first" {
		t.Errorf("%+v, %v", v, err)
	}
	second, err := s.Put(t.Context(), "k", []byte("second"), first.Version)
	if err != nil {
		t.Fatal(err)
	}
	// The same value that was written anew by hand has another version.
	if _, err := s.Put(t.Context(), "k", []byte("first"), second.Version); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("third"), first.Version); !errors.Is(err, cas.ErrConflict) {
		t.Errorf("a write over the same value of another revision: %v", err)
	}
}

// After a restore from a backup the revisions come again, and the cluster has its old ID. A write that is late from before the restore is
// not done, although the key has the revision that it demands. Tokens rise.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	l := openAt(t, server.URL(), onlyReads)
	s := l.store
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		err = l.Release(t.Context(), lease)
	}
	base, err2 := s.Put(t.Context(), "k", []byte("base"), "")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	restore, err := server.Backup(t.Context(), t.TempDir()+"/backup")
	if err != nil {
		t.Fatal(err)
	}
	certain := func(call func() error) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := call()
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	var before, after cas.Written
	certain(func() (err error) {
		before, err = s.Put(t.Context(), "k", []byte("before the restore"), base.Version)
		return err
	})
	certain(func() (err error) { lease, err = l.TryAcquire(t.Context(), request("n", "b")); return err })
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	certain(func() (err error) {
		after, err = s.Put(t.Context(), "k", []byte("after the restore"), base.Version)
		return err
	})
	old, _, _ := parseVersion(before.Version)
	if now, _, _ := parseVersion(after.Version); now != old {
		t.Fatalf("the revision after the restore is %d, and before it was %d: the test shows nothing", now, old)
	}
	if _, err := s.Put(t.Context(), "k", []byte("late"), before.Version); !errors.Is(err, cas.ErrConflict) {
		t.Errorf("a write from before the restore: %v", err)
	}
	next, err := l.TryAcquire(t.Context(), request("n", "c"))
	if err != nil || next.Token <= lease.Token {
		t.Errorf("token %d after %d, %v", next.Token, lease.Token, err)
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal of a lease that the restore has removed: %v", err)
	}
}

// The number of requests of each call.
func TestRequests(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	l := openAt(t, etcdtest.URL(t), onlyReads, func(c *settings) { c.sent = func() { sent.Add(1) } })
	if _, err := l.Inspect(t.Context(), "first"); err != nil { // from now on the member is known
		t.Fatal(err)
	}
	var lease driver.Lease
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("name-", i)
	}
	for _, c := range []struct {
		what string
		want int64
		call func() error
	}{
		{"acquire", 2, func() (err error) { lease, err = l.TryAcquire(t.Context(), request("n", "a")); return err }},
		{"renew", 1, func() (err error) { lease, err = l.Renew(t.Context(), lease); return err }},
		{"refused", 1, func() error {
			if _, err := l.TryAcquire(t.Context(), request("n", "b")); !errors.Is(err, driver.ErrHeld) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}},
		{"inspect", 1, func() error { _, err := l.Inspect(t.Context(), "n"); return err }},
		{"inspect 1,000 names", 10, func() error { _, errs := l.InspectBatch(t.Context(), "", names); return errors.Join(errs...) }},
		{"release", 1, func() error { return l.Release(t.Context(), lease) }},
	} {
		before := sent.Load()
		if err := c.call(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := sent.Load() - before; got != c.want {
			t.Errorf("%s: %d requests, want %d", c.what, got, c.want)
		}
	}
}

// A batch has the values of many keys in their order, those without one included.
func TestGetBatch(t *testing.T) {
	t.Parallel()
	s := storeAt(t, etcdtest.URL(t))
	var keys []string
	for i := range 2*maxRanges + 1 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	there := []int{0, maxRanges - 1, maxRanges, 2 * maxRanges}
	for _, i := range there {
		if _, err := s.Put(t.Context(), keys[i], []byte(keys[i]), ""); err != nil {
			t.Fatal(err)
		}
	}
	values, err := s.GetBatch(t.Context(), keys)
	if err != nil || len(values) != len(keys) {
		t.Fatal(len(values), err)
	}
	for i, v := range values {
		if want := slices.Contains(there, i); (v.Version != "") != want || want && string(v.Data) != keys[i] {
			t.Errorf("%s: %+v", keys[i], v)
		}
	}
	if values, err = s.GetBatch(t.Context(), nil); err != nil || len(values) != 0 {
		t.Error(values, err)
	}
}

// A list has every lock of its prefix once, over several pages, and nothing of longer prefixes and other programs.
func TestList(t *testing.T) {
	t.Parallel()
	rawURL := etcdtest.URL(t)
	l := openAt(t, rawURL, onlyReads)
	longer := openAt(t, rawURL+"/job-0001", onlyReads)
	if _, err := longer.TryAcquire(t.Context(), request("token", "a")); err != nil {
		t.Fatal(err)
	}
	const n = pageSize/2 + 20 // each has a second key with its token
	for i := range n {
		if _, err := l.TryAcquire(t.Context(), request(fmt.Sprintf("job-%04d", i), "a")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.TryAcquire(t.Context(), request("other", "a")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range l.List(t.Context(), "job-") {
		if err != nil || r.Owner != "owner a" {
			t.Fatal(r, err)
		}
		got = append(got, r.Name)
	}
	if len(got) != n || !slices.IsSorted(got) || got[0] != "job-0000" || got[n-1] != fmt.Sprintf("job-%04d", n-1) {
		t.Errorf("%d locks: %v", len(got), got)
	}
	items, _, err := l.store.List(t.Context(), "", "")
	for _, item := range items {
		if strings.Contains(item.Key, "/") {
			t.Errorf("the list has the key %s", item.Key)
		}
	}
	if len(items) == 0 || err != nil {
		t.Errorf("%d keys, %v", len(items), err)
	}
	names := 0
	for r, err := range longer.List(t.Context(), "") {
		if names++; err != nil || r.Name != "token" {
			t.Error(r, err)
		}
	}
	if names != 1 {
		t.Errorf("%d locks with the longer prefix", names)
	}
}

// A value of another program is damaged, and is not overwritten.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	l := openAt(t, etcdtest.URL(t))
	key := lockrecord.Key("n")
	if _, err := l.store.Put(t.Context(), key, []byte("by another program"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("acquire: %v", err)
	}
	_, errs := l.InspectBatch(t.Context(), "", []string{"n", "free"})
	if !errors.Is(errs[0], driver.ErrDamaged) || errs[1] != nil {
		t.Errorf("batch: %v", errs)
	}
	if v, err := l.store.Get(t.Context(), key); err != nil || string(v.Data) != "by another program" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

// The grant writes its token in its own transaction. Renewals, releases and what loses the race do not.
func TestTokenKey(t *testing.T) {
	t.Parallel()
	l := openAt(t, etcdtest.URL(t), onlyReads)
	value := func() (text string, revision int64) {
		t.Helper()
		var a rangeAnswer
		err := l.store.ask(t.Context(), call{method: methodRange, body: rangeRequest{Key: []byte(TokenKey(l.store.prefix, "A/b"))}}, &a)
		if err != nil || len(a.KVs) != 1 {
			t.Fatal(a, err)
		}
		return string(a.KVs[0].Value), a.KVs[0].ModRevision
	}
	is := func(token uint64) (revision int64) {
		t.Helper()
		text, revision := value()
		if text != strconv.FormatUint(token, 10) {
			t.Errorf("the key has %s, want %d", text, token)
		}
		return revision
	}
	first, err := l.TryAcquire(t.Context(), request("A/b", "a"))
	if err != nil {
		t.Fatal(err)
	}
	written := is(first.Token)
	if first, err = l.Renew(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("A/b", "b")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	late := first
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if is(first.Token) != written {
		t.Error("something other than the grant has written the token")
	}
	if before, err := writeGuarded(t.Context(), l, late, "one"); err != nil || before != "" {
		t.Errorf("%q, %v", before, err)
	}
	second, err := l.TryAcquire(t.Context(), request("A/b", "b"))
	if err != nil {
		t.Fatal(err)
	}
	is(second.Token)
	if before, err := writeGuarded(t.Context(), l, second, "two"); err != nil || before != "one" {
		t.Errorf("%q, %v", before, err)
	}
	if _, err := writeGuarded(t.Context(), l, late, "late"); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the late write: %v", err)
	}
	if before, err := writeGuarded(t.Context(), l, second, "three"); err != nil || before != "two" {
		t.Errorf("%q, %v", before, err)
	}
	if got := TokenKey("", "billing"); got != "holdfast/billing/.token" {
		t.Error(got)
	}
}

// Data as large as they may be can be stored, renewed and replaced.
func TestLargestData(t *testing.T) {
	t.Parallel()
	l := openAt(t, etcdtest.URL(t), onlyReads)
	req := request(strings.Repeat("N", l.Info().Limits.MaxName), "a")
	req.Owner = strings.Repeat("o", l.Info().Limits.MaxOwner)
	req.Data = bytes.Repeat([]byte{0xff}, l.Info().Limits.MaxData)
	lease, err := l.TryAcquire(t.Context(), req)
	if err == nil {
		lease, err = l.Renew(t.Context(), lease)
	}
	if err == nil {
		err = l.Release(t.Context(), lease)
	}
	data, _, err2 := l.ReadData(t.Context(), req.Name)
	if err = errors.Join(err, err2); err != nil || !bytes.Equal(data, req.Data) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// The write that reaches the quota of the database is done, although the member refuses it. Others are not.
func TestQuota(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	value := func(text string, revision int64) reply {
		return reply{message: appendBytes(from(7), 2, keyOf(text, revision))}
	}
	for what, c := range map[string]struct {
		after           reply // that of a read
		lasting, unsure bool
	}{
		"nothing was done":  {after: value("before", 5), lasting: true},
		"it was done":       {after: value("mine", 6)},
		"another was done":  {after: value("another", 7), unsure: true},
		"it cannot be read": {after: reply{status: 14, text: "etcdserver: request timed out"}, unsure: true},
	} {
		f.set(methodRange, reply{})
		f.set(methodTxn, reply{status: 8, text: "etcdserver: mvcc: database space exceeded", do: func() { f.set(methodRange, c.after) }})
		w, err := s.Put(t.Context(), "k", []byte("mine"), versionOf(5, []byte("before")))
		if (err != nil) != (c.lasting || c.unsure) || driver.Lasting(err) != c.lasting ||
			err == nil && w.Version != versionOf(6, []byte("mine")) {
			t.Errorf("%s: %+v, %v", what, w, err)
		}
	}
}

// A batch and a page of a list may have many values of the largest size.
func TestLargestAnswers(t *testing.T) {
	t.Parallel()
	l := openAt(t, etcdtest.URL(t), onlyReads)
	names := make([]string, 60) // several times the 4 MiB to which clients of gRPC limit an answer by default
	data := bytes.Repeat([]byte{0xff}, l.Info().Limits.MaxData)
	for i := range names {
		names[i] = fmt.Sprintf("job-%04d", i)
		req := request(names[i], "a")
		req.Data = data
		if _, err := l.TryAcquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs := l.InspectBatch(t.Context(), "", names); errors.Join(errs...) != nil {
		t.Errorf("batch: %v", errs[0])
	}
	listed := 0
	for r, err := range l.List(t.Context(), "job-") {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if r.State == driver.StateHeld {
			listed++
		}
	}
	if listed != len(names) {
		t.Errorf("%d locks are listed, want %d", listed, len(names))
	}
}

// Locks can be kept apart from others in the same cluster, and are removed, also those that are held.
func TestApart(t *testing.T) {
	t.Parallel()
	rawURL := with(etcdtest.URL(t), "history=3")
	take := func(rawURL, name string) driver.Lease {
		t.Helper()
		lease, err := openAt(t, rawURL, onlyReads).TryAcquire(t.Context(), request(name, "0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e0e"))
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	theirs := take(rawURL, "job")
	own, remove := apart(rawURL, "holdfast_certify_test")
	neighbour, _ := apart(rawURL, "holdfast_certify_test2")
	other := take(neighbour, "job")
	for range 2 { // the second time after it was removed
		take(own, "job")
		take(own, "a*b")
		if err := remove(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	l := openAt(t, own, onlyReads)
	if r, err := l.Inspect(t.Context(), "job"); err != nil || r.Token != 0 || l.Info().History != 3 {
		t.Errorf("after the removal there is %+v, %v", r, err)
	}
	for at, lease := range map[string]driver.Lease{rawURL: theirs, neighbour: other} {
		r, err := openAt(t, at, onlyReads).Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateHeld || r.Token != lease.Token {
			t.Errorf("the lock beside it is %+v, %v", r, err)
		}
	}
	if own, _ := apart("etcds://u:p@h1,h2:1", "x"); own != "etcds://u:p@h1,h2:1/holdfast/x" {
		t.Error(own)
	}
	if _, remove := apart("etcd:", "x"); !errors.Is(remove(t.Context()), driver.ErrInvalid) {
		t.Error("the URL without a host is valid")
	}
}
