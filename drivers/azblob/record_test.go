package azblob

import (
	"bytes"
	"maps"
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
	r := record{token: 7, others: others}.nextGrant(req, newID(), now)
	if r.token != uint64(now.UnixMilli()) {
		t.Errorf("the token is %d, want the time", r.token)
	}
	if next := r.nextGrant(req, newID(), now.Add(-time.Hour)); next.token != r.token+1 {
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

// A record that is damaged or of another version is an error. It stays unchanged, and no lease
// is left.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
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
		if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), `version "2"`) {
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
	if _, err := l.Blob("n").Upload(bounded(t), requestBody([]byte("there")), &blockblob.UploadOptions{Metadata: map[string]*string{"colour": &red}}); err != nil {
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
