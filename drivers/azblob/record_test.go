package azblob

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 13, 0, 5, 0, time.UTC)
	others := map[string]*string{"colour": &[]string{"red"}[0]}
	req := driver.Request{Owner: "me/1 \x00 é =?utf-8?b?eA==?=", TTL: 15 * time.Second}
	r := record{token: 7, others: others}.nextGrant(req, newID(), now, driver.DefaultHistory)
	if r.token != uint64(now.UnixMilli()) {
		t.Errorf("the token is %d, want the time", r.token)
	}
	if next := r.nextGrant(req, newID(), now.Add(-time.Hour), driver.DefaultHistory); next.token != r.token+1 {
		t.Errorf("the token is %d after %d", next.token, r.token)
	}
	upper := map[string]*string{}
	for key, value := range r.metadata() {
		if strings.ContainsFunc(*value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			t.Errorf("%s = %q is no proper header", key, *value)
		}
		upper[strings.ToUpper(key[:1])+key[1:]] = value // as Go canonicalizes headers
	}
	back, err := parse(upper)
	if err != nil || back.id != r.id || back.owner != r.owner || back.token != r.token || back.ttl != r.ttl || !back.acquired.Equal(now) ||
		*back.others["colour"] != "red" {
		t.Errorf("%+v comes back as %+v, %v", r, back, err)
	}
	if none, err := parse(others); err != nil || none.id != "" || none.token != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	for key, bad := range map[string][]string{
		keyVersion: {"", "2"}, keyID: {"", "x"}, keyToken: {"", "0", "-1", "x", "9223372036854775807", "9223372036854775808"},
		keyOwner: {"%zz"}, keyTTL: {"", "x", "14", "61", "-15"}, keyAcquired: {"", "yesterday", "0000-01-01T00:00:00+23:59",
			"9999-12-31T23:59:59-23:59"},
		keyWrites: {"", "x", "-1", "9223372036854775807 mark"},
	} {
		for _, value := range bad {
			m := maps.Clone(upper)
			delete(m, strings.ToUpper(key[:1])+key[1:])
			m[key] = &value
			if _, err := parse(m); err == nil {
				t.Errorf("%s = %q passes", key, value)
			}
		}
	}
}

// A record that is damaged or of another version is an error. It stays unchanged, and no lease
// is left.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	used(t, l, "n")
	used(t, l, "other")
	b := l.Blob("n").BlobClient()
	damaged := map[string]*string{keyVersion: &[]string{"2"}[0], "new": &[]string{"thing"}[0]}
	if _, err := b.SetMetadata(bounded(t), damaged, nil); err != nil {
		t.Fatal(err)
	}
	_, acquiring := l.TryAcquire(bounded(t), request("n"))
	_, inspecting := l.Inspect(bounded(t), "n")
	for _, err := range []error{acquiring, inspecting} {
		if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), `version "2"`) ||
			!strings.Contains(err.Error(), "docs/upgrading.md") {
			t.Errorf("got %v, want an error about the version", err)
		}
	}
	p, err := b.GetProperties(bounded(t), nil)
	if err != nil || *p.LeaseState != "available" || len(p.Metadata) != 2 {
		t.Errorf("the blob is %s with %d metadata, %v", *p.LeaseState, len(p.Metadata), err)
	}
	var listed []string
	for r, err := range l.List(bounded(t), "") {
		entry := r.Name + " " + r.State.String()
		if err != nil {
			entry += ": error"
			if !strings.Contains(err.Error(), `list "n" on azblob`) || !strings.Contains(err.Error(), `version "2"`) {
				t.Errorf("got %v, want an error about the version", err)
			}
		}
		listed = append(listed, entry)
	}
	if got := strings.Join(listed, ", "); got != "n unknown: error, other free" {
		t.Errorf("listed: %s", got)
	}
}

// Other metadata and an existing blob are kept.
func TestOthersMetadata(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	red := "red"
	if _, err := l.Blob("n").Upload(bounded(t), requestBody([]byte("there")),
		&blockblob.UploadOptions{Metadata: map[string]*string{"colour": &red}}); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, request("n"))
	if err := l.WriteData(bounded(t), lease, []byte("data"), grantRevision(lease)); err != nil {
		t.Fatal(err)
	}
	release(t, l, lease)
	p, err := l.Blob("n").BlobClient().GetProperties(bounded(t), &blob.GetPropertiesOptions{})
	if err != nil || p.Metadata["Colour"] == nil && p.Metadata["colour"] == nil {
		t.Errorf("metadata %v, %v", p.Metadata, err)
	}
	if r := inspect(t, l, "n"); string(r.Data) != "data" || r.Token != lease.Token {
		t.Errorf("%+v", r)
	}
}

// The same ID keeps its token while it holds, also after a renewal. Its TTL never gets
// shorter.
func TestRepeat(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	req := request("n")
	req.TTL = 30 * time.Second
	first := acquire(t, l, req)
	for _, step := range []struct{ ask, want time.Duration }{
		{15 * time.Second, 30 * time.Second}, {60 * time.Second, 60 * time.Second}, {30 * time.Second, 60 * time.Second},
	} {
		req.TTL = step.ask
		req.Data = []byte("not written")
		again := acquire(t, store.locker(), req)
		if again.Token != first.Token || again.TTL != step.ask {
			t.Errorf("asked for %v: %v", step.ask, again)
		}
		if r := inspect(t, l, "n"); r.TTL != step.want || len(r.Data) != 0 {
			t.Errorf("asked for %v: %+v", step.ask, r)
		}
	}
}

// A blob that is too large for a lock's data is not read into memory.
func TestTooLargeBlob(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	l := store.locker()
	if _, err := l.Blob("n").Upload(bounded(t), requestBody(bytes.Repeat([]byte("x"), limits.MaxData+1)), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.ReadData(bounded(t), "n"); err == nil || !strings.Contains(err.Error(), "bytes that a lock's data may have") {
		t.Errorf("got %v", err)
	}
}

// FuzzMetadata checks that metadata that can be read are written back as they are, and that the
// record of a grant that follows can be read, too. An error shows no value but the version.
func FuzzMetadata(f *testing.F) {
	const id = "0123abcd-4567-89AB-cdef-0123456789ab"
	f.Add("1", id, "7", "me%2F1", "15", "2026-11-21T13:00:05Z", "3 mark", "Colour", "red")
	f.Add("1", id, "9223372036854775807", "%ff", "060", "0000-01-01T00:00:00+23:59", "9223372036854775807 mark", "HOLDFASTTTL", "15")
	f.Add("1", id, "9223372036854775806", "", "60", "9999-12-31T23:59:59.9-23:59", "0 mark", "holdfast", "")
	f.Add("2", "", "", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, v, id, token, owner, ttl, acquired, writes, otherKey, otherValue string) {
		m := map[string]*string{
			keyVersion: &v, "Holdfastid": &id, keyToken: &token, keyOwner: &owner, keyTTL: &ttl, keyAcquired: &acquired,
		}
		if writes != "" {
			m[keyWrites] = &writes
		}
		if !slices.Contains(keys, strings.ToLower(otherKey)) {
			m[otherKey] = &otherValue
		}
		r, err := parse(m)
		if err != nil {
			for _, value := range []string{id, token, owner, ttl, acquired, writes, otherValue} {
				if len(value) > 10 && !strings.Contains(v, value) && strings.Contains(err.Error(), value) && !slices.Contains(keys, value) {
					t.Errorf("a value is in %v", err)
				}
			}
			return
		}
		if r.token == 0 || r.token >= lastToken || driver.ValidateTTL(r.ttl, limits) != nil || r.acquired.Year() < 0 || r.acquired.Year() > 9999 {
			t.Errorf("%+v is accepted", r)
		}
		written := r.metadata()
		again, err := parse(written)
		if err != nil || !sameRecord(again, r) {
			t.Errorf("%+v comes back as %+v, error %v", r, again, err)
		}
		for _, key := range keys {
			if value := written[key]; value != nil && key != keyWrites && strings.ContainsFunc(*value, func(c rune) bool {
				return c <= ' ' ||
					c > '~'
			}) {
				t.Errorf("%s = %q is no proper header", key, *value)
			}
		}
		if r.token == lastToken-1 {
			return
		}
		next := r.nextGrant(driver.Request{Owner: r.owner, TTL: r.ttl}, r.id, time.UnixMilli(5).UTC(), driver.MaxHistory)
		next.writes, next.writeMark = 1, "mark"
		if granted, err := parse(next.metadata()); err != nil || granted.token <= r.token || !sameRecord(granted, next) {
			t.Errorf("%+v is granted as %+v, error %v", r, granted, err)
		}
	})
}

// sameRecord compares records. The metadata have whole seconds, and no mark before the first write.
func sameRecord(a, b record) bool {
	return a.id == b.id && a.owner == b.owner && a.token == b.token && a.ttl == b.ttl &&
		a.acquired.Unix() == b.acquired.Unix() && a.writes == b.writes && (a.writeMark == b.writeMark || b.writes == 0) &&
		slices.Equal(a.history, b.history) && maps.EqualFunc(a.others, b.others, func(x, y *string) bool { return x == y })
}

// The history fits into the metadata, whatever else is there. A damaged history is no error.
func TestHistoryInMetadata(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 13, 0, 5, 0, time.UTC)
	total := func(m map[string]*string) (n int) {
		for key, value := range m {
			n += len(key) + len(*value)
		}
		return n
	}
	owner := strings.Repeat("é ", 341)
	for _, other := range []int{0, 2000, 4000, 4500, 7000} {
		filler := strings.Repeat("x", other)
		r := record{others: map[string]*string{"filler": &filler}}
		for i := range 2 * driver.MaxHistory {
			r = r.nextGrant(driver.Request{Owner: owner, TTL: 15 * time.Second}, newID(), now.Add(time.Duration(i)*time.Second), driver.MaxHistory)
		}
		m := r.metadata()
		delete(m, keyHistory)
		alone := total(m)
		back, err := parse(r.metadata())
		if err != nil || total(r.metadata()) > 8<<10 && len(back.history) > 0 {
			t.Errorf("%d bytes of others: %d bytes with %d past holders, error %v", other, total(r.metadata()), len(back.history), err)
		}
		want := r.history[len(r.history)-len(back.history):]
		if !slices.Equal(back.history, want) || len(want) == 0 && alone < 7000 {
			t.Errorf("%d bytes of others: the history comes back as %+v, want the end of %+v", other, back.history, r.history)
		}
		for _, one := range back.history {
			if len(one.Owner) > maxPastOwner || !strings.HasSuffix(one.Owner, "…") || !strings.HasPrefix(owner, strings.TrimSuffix(one.Owner, "…")) {
				t.Errorf("the owner is %q", one.Owner)
			}
		}
	}
	r := record{}.nextGrant(driver.Request{Owner: "a", TTL: 15 * time.Second}, newID(), now, 8)
	for _, damaged := range []string{"", "x", "1;2;3", "é", strings.Repeat(",", 5000)} {
		m := r.metadata()
		m[keyHistory] = &damaged
		if back, err := parse(m); err != nil || len(back.history) != 0 || len(back.others) != 0 {
			t.Errorf("%q: %+v, %v", damaged, back, err)
		}
	}
	if next := r.nextGrant(driver.Request{Owner: "b", TTL: 15 * time.Second}, newID(), now, 0); len(next.history) != 0 {
		t.Errorf("0 past holders: %+v", next.history)
	}
}

// The state of a free lock's lease shows how the last tenure ended. With another holder it is
// unknown.
func TestHistoryOfLeases(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	past := func(name string) string {
		var all []string
		for _, one := range inspect(t, l, name).History {
			all = append(all, one.Owner+" "+one.End.String())
		}
		return strings.Join(all, ", ")
	}
	req := func(owner string) driver.Request {
		r := request("n")
		r.Owner = owner
		return r
	}
	release(t, l, acquire(t, l, req("a")))
	if got := past("n"); got != "a released" {
		t.Errorf("after a release the history is %q", got)
	}
	acquire(t, l, req("b"))
	if got := past("n"); got != "a unknown" {
		t.Errorf("while b holds the lock the history is %q", got)
	}
	if err := l.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if got := past("n"); got != "b broken, a unknown" {
		t.Errorf("after BreakNow the history is %q", got)
	}
	if _, err := store.locker(WithHistory(1)).TryAcquire(bounded(t), req("c")); err != nil {
		t.Fatal(err)
	}
	if got := past("n"); got != "b unknown" {
		t.Errorf("with one past holder the history is %q", got)
	}
	if r := inspect(t, l, "n"); time.Since(r.ReadAt).Abs() > time.Minute {
		t.Errorf("read at %v", r.ReadAt)
	}
	for _, n := range []int{-1, driver.MaxHistory + 1} {
		if _, err := New(store.client, WithHistory(n)); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "history") {
			t.Errorf("WithHistory(%d): %v", n, err)
		}
	}
}
