package azblob

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

// createForeignBlobs creates blobs that are not a lock's, named for what they are.
func createForeignBlobs(t *testing.T, store *testContainer) {
	t.Helper()
	ctx := bounded(t)
	appending := store.client.NewAppendBlobClient("append")
	if _, err := appending.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := appending.AppendBlock(ctx, requestBody([]byte("appended")), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.client.NewAppendBlobClient("empty-append").Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.client.NewPageBlobClient("page").Create(ctx, 512, nil); err != nil {
		t.Fatal(err)
	}
	x := "x"
	if _, err := store.client.NewBlockBlobClient("block").UploadBuffer(ctx, []byte("contents"),
		&blockblob.UploadBufferOptions{Metadata: map[string]*string{"MyKey": &x}}); err != nil {
		t.Fatal(err)
	}
}

// blobContents returns everything about a blob that an acquire must not change.
func blobContents(t *testing.T, l *Locker, name string) string {
	t.Helper()
	answer, data, err := l.download(bounded(t), l.lockBlob(name, ""))
	if err != nil {
		t.Fatal(err)
	}
	var my string
	for key, value := range answer.Metadata {
		if strings.EqualFold(key, "mykey") {
			my = *value
		}
	}
	return string(*answer.BlobType) + " " + my + " " + string(bytes.TrimRight(data, "\x00"))
}

// A program's own blob with the name of a lock's blob keeps its contents: an acquire with data
// is refused and leaves no lease, one without data is granted.
func TestForeignBlobs(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	createForeignBlobs(t, store)
	l := store.locker()
	for _, name := range []string{"append", "empty-append", "page", "block"} {
		before := blobContents(t, l, name)
		etag := func() string {
			p, err := l.Blob(name).GetProperties(bounded(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(*p.ETag) + string(*p.LeaseState)
		}
		free := etag()
		for _, data := range []string{"", "data"} {
			req := request(name)
			req.Data = []byte(data)
			_, err := l.TryAcquire(bounded(t), req)
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), `the blob "`+name+`" has contents of another program`) {
				t.Errorf("%s, acquired with %q: %v, want an error that names the blob", name, data, err)
			}
			if now := etag(); now != free {
				t.Errorf("%s is %s, was %s", name, now, free)
			}
		}
		req := request(name)
		held := acquire(t, l, req)
		if r := inspect(t, l, name); r.Owner != req.Owner || r.State != driver.StateHeld {
			t.Errorf("%s: %+v", name, r)
		}
		if err := l.WriteData(bounded(t), held, []byte("x"), grantRevision(held)); (err == nil) != (name == "block") {
			t.Errorf("%s, written by its holder: %v", name, err)
		} else if name == "block" {
			before = strings.Replace(before, "contents", "x", 1)
		}
		release(t, l, held)
		if after := blobContents(t, l, name); after != before {
			t.Errorf("%s has %q, had %q", name, after, before)
		}
	}
}
