package azblob

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"billing-2_A": "billing-2_A", "a/b": "a=2Fb", ".": "=2E", "..": "=2E=2E", "a.": "a=2E", "=": "=3D", "a=2Fb": "a=3D2Fb", "é": "=C3=A9", "\x00": "=00",
	} {
		if got := escape(name); got != want {
			t.Errorf("escape(%q) = %q, want %q", name, got, want)
		}
		if back, ok := unescape(want); !ok || back != name {
			t.Errorf("unescape(%q) = %q, %v", want, back, ok)
		}
	}
	for _, alien := range []string{"", "a/b", "a.b", "=", "=2", "=2f", "=41", "=GG", "a=", "é"} {
		if name, ok := unescape(alien); ok {
			t.Errorf("unescape(%q) = %q, although escape never makes it", alien, name)
		}
	}
	longest := strings.Repeat("/", limits.MaxName)
	if n := maxPrefix + len(escape(longest)); n > 1024 {
		t.Errorf("a blob's name may get %d bytes long", n)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a", "b")
	f.Add("a/b", "a=2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		if back, ok := unescape(escape(a)); !ok || back != a {
			t.Errorf("%q comes back as %q", a, back)
		}
		if (escape(a) == escape(b)) != (a == b) || strings.HasPrefix(escape(a), escape(b)) != strings.HasPrefix(a, b) {
			t.Errorf("%q and %q become %q and %q", a, b, escape(a), escape(b))
		}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	const id = "0123abcd-4567-89AB-cdef-0123456789ab"
	if got, ok := canonical(id); !ok || got != strings.ToLower(id) {
		t.Errorf("%q, %v", got, ok)
	}
	for _, bad := range []string{"", "x", id + "0", id[1:] + "g", strings.ReplaceAll(id, "-", "0"), "{" + id[:34] + "}", id[:8] + "--" + id[10:]} {
		if _, ok := canonical(bad); ok {
			t.Errorf("%q passes for a UUID", bad)
		}
	}
	room := newRoom(t)
	l := room.locker()
	req := request("n")
	req.ID = driver.NewLeaseID("not a UUID")
	var invalid *driver.InvalidError
	if _, err := l.TryAcquire(bounded(t), req); !errors.As(err, &invalid) || invalid.Field != "ID" {
		t.Errorf("acquire: %v", err)
	}
	lease := driver.Lease{Name: "n", ID: req.ID, TTL: time.Minute}
	if err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := l.WriteData(bounded(t), lease, nil, granted(lease)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("write data: %v", err)
	}
	release(t, l, lease)
	req.ID = driver.NewLeaseID(strings.ToUpper(newID())) // the case of an ID makes no difference
	lease = acquire(t, l, req)
	lease.ID = driver.NewLeaseID(strings.ToLower(req.ID.Reveal()))
	if err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	if again := acquire(t, l, req); again.Token != lease.Token {
		t.Errorf("a repeat got token %d after %d", again.Token, lease.Token)
	}
	release(t, l, lease)
	if r := inspect(t, l, "n"); r.State != driver.StateFree {
		t.Errorf("%+v", r)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 13, 0, 5, 0, time.UTC)
	others := map[string]*string{"colour": &[]string{"red"}[0]}
	req := driver.Request{Owner: "me/1 \x00 é =?utf-8?b?eA==?=", TTL: 15 * time.Second}
	r := record{token: 7, others: others}.next(req, newID(), now)
	if r.token != uint64(now.UnixMilli()) {
		t.Errorf("the token is %d, want the time", r.token)
	}
	if next := r.next(req, newID(), now.Add(-time.Hour)); next.token != r.token+1 {
		t.Errorf("the token is %d after %d", next.token, r.token)
	}
	upper := map[string]*string{}
	for key, value := range r.metadata() {
		if strings.ContainsFunc(*value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			t.Errorf("%s = %q is no proper header", key, *value)
		}
		upper[strings.ToUpper(key[:1])+key[1:]] = value // as Go reads headers
	}
	back, err := parse(upper)
	if err != nil || back.id != r.id || back.owner != r.owner || back.token != r.token || back.ttl != r.ttl || !back.acquired.Equal(now) || *back.others["colour"] != "red" {
		t.Errorf("%+v comes back as %+v, %v", r, back, err)
	}
	if none, err := parse(others); err != nil || none.id != "" || none.token != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	for key, bad := range map[string][]string{
		keyVersion: {"", "2"}, keyID: {"", "x"}, keyToken: {"", "0", "-1", "x", "9223372036854775808"},
		keyOwner: {"%zz"}, keyTTL: {"", "x", "14", "61", "-15"}, keyAcquired: {"", "yesterday"},
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

// A record of another version, or a damaged one, is an error that changes
// nothing and leaves no lease.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	release(t, l, acquire(t, l, request("n")))
	release(t, l, acquire(t, l, request("other")))
	b := l.Blob("n").BlobClient()
	damaged := map[string]*string{keyVersion: &[]string{"2"}[0], "new": &[]string{"thing"}[0]}
	if _, err := b.SetMetadata(bounded(t), damaged, nil); err != nil {
		t.Fatal(err)
	}
	_, acquiring := l.TryAcquire(bounded(t), request("n"))
	_, inspecting := l.Inspect(bounded(t), "n")
	for _, err := range []error{acquiring, inspecting} {
		if err == nil || outcomeKnown(err) || !strings.Contains(err.Error(), `version "2"`) {
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

// Metadata of others, and a blob that was there before, are kept.
func TestOthersMetadata(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	red := "red"
	if _, err := l.Blob("n").Upload(bounded(t), body([]byte("there")), &blockblob.UploadOptions{Metadata: map[string]*string{"colour": &red}}); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, request("n"))
	if err := l.WriteData(bounded(t), lease, []byte("data"), granted(lease)); err != nil {
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

// The same ID again: the same token while it holds, also once the lease has been
// renewed; its TTL never gets shorter.
func TestRepeat(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	req := request("n")
	req.TTL = 30 * time.Second
	first := acquire(t, l, req)
	for _, step := range []struct{ ask, want time.Duration }{
		{15 * time.Second, 30 * time.Second}, {60 * time.Second, 60 * time.Second}, {30 * time.Second, 60 * time.Second},
	} {
		req.TTL = step.ask
		req.Data = []byte("not written")
		again := acquire(t, room.locker(), req)
		if again.Token != first.Token || again.TTL != step.ask {
			t.Errorf("asked for %v: %v", step.ask, again)
		}
		if r := inspect(t, l, "n"); r.TTL != step.want || len(r.Data) != 0 {
			t.Errorf("asked for %v: %+v", step.ask, r)
		}
	}
}

// Lockers with different prefixes do not see each other, nor what else is in
// the container.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	lockers := []*Locker{room.locker(), room.locker(WithPrefix("a")), room.locker(WithPrefix("a/b")), room.locker(WithPrefix("b"))}
	if _, err := room.client.NewBlockBlobClient("strangers").Upload(bounded(t), body(nil), nil); err != nil {
		t.Fatal(err)
	}
	for i, l := range lockers {
		l.config.pageSize = &[]int32{1}[0]
		for _, name := range []string{"n", "b/n", "z"}[:i%3+1] {
			acquire(t, l, request(name))
		}
	}
	for i, l := range lockers {
		var names []string
		for r, err := range l.List(bounded(t), "") {
			if err != nil || r.State != driver.StateHeld || r.Owner == "" {
				t.Errorf("%+v, %v", r, err)
			}
			names = append(names, r.Name)
		}
		want := []string{"n", "b/n n", "b/n n z", "n"}[i]
		if got := strings.Join(names, " "); got != want {
			t.Errorf("prefix %q: %s, want %s", l.config.prefix, got, want)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	for _, opt := range []Option{
		WithPrefix("/"), WithPrefix("a/"), WithPrefix("/a"), WithPrefix("a//b"), WithPrefix("a/./b"), WithPrefix(".."), WithPrefix("a."), WithPrefix("ä"),
		WithPrefix(strings.Repeat("x", maxPrefix)), WithRequestTimeout(0), WithRequestTimeout(time.Millisecond), WithLogger(nil),
	} {
		if _, err := New(room.client, opt); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	if _, err := New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	l := room.locker(WithPrefix(strings.Repeat("x", maxPrefix-1)))
	acquire(t, l, request(strings.Repeat("/", limits.MaxName)))
	if _, err := l.TryAcquire(bounded(t), driver.Request{Name: "n", ID: driver.NewLeaseID(newID()), TTL: 2 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "TTL 2s is invalid: must be from 15s to 1m in steps of 1s on this backend") {
		t.Errorf("a TTL of 2 s: %v", err)
	}
}

// A blob that is far too big for a lock's is not read into memory.
func TestHugeBlob(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	l := room.locker()
	if _, err := l.Blob("n").Upload(bounded(t), body(bytes.Repeat([]byte("x"), limits.MaxData+1)), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.ReadData(bounded(t), "n"); err == nil || !strings.Contains(err.Error(), "not a lock's") {
		t.Errorf("got %v", err)
	}
}
