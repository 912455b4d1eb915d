package azblob

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

// foreign makes blobs that are no lock's, named for what they are.
func foreign(t *testing.T, room *room) {
	t.Helper()
	ctx := bounded(t)
	appending := room.client.NewAppendBlobClient("append")
	if _, err := appending.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := appending.AppendBlock(ctx, body([]byte("appended")), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := room.client.NewAppendBlobClient("empty-append").Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := room.client.NewPageBlobClient("page").Create(ctx, 512, nil); err != nil {
		t.Fatal(err)
	}
	x := "x"
	if _, err := room.client.NewBlockBlobClient("block").UploadBuffer(ctx, []byte("contents"), &blockblob.UploadBufferOptions{Metadata: map[string]*string{"MyKey": &x}}); err != nil {
		t.Fatal(err)
	}
}

// contents are a blob's, and all that an acquire must not change about it.
func contents(t *testing.T, l *Locker, name string) string {
	t.Helper()
	answer, data, err := l.download(bounded(t), l.target(name, ""))
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

// A program's own blob in the way of a lock's keeps its contents: an acquire with
// data is refused, and leaves no lease; one without data is granted.
func TestForeignBlobs(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	foreign(t, room)
	l := room.locker()
	for _, name := range []string{"append", "empty-append", "page", "block"} {
		before := contents(t, l, name)
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
			if err == nil || outcomeKnown(err) || !strings.Contains(err.Error(), `the blob "`+name+`" is not a lock's`) {
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
		if err := l.WriteData(bounded(t), held, []byte("x"), granted(held)); (err == nil) != (name == "block") {
			t.Errorf("%s, written by its holder: %v", name, err)
		} else if name == "block" {
			before = strings.Replace(before, "contents", "x", 1)
		}
		release(t, l, held)
		if after := contents(t, l, name); after != before {
			t.Errorf("%s has %q, had %q", name, after, before)
		}
	}
}

// A fence on a lock's own blob outlives the next acquire.
func TestFenceOnALocksBlob(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	release(t, l, acquire(t, l, request("n")))
	b := l.Blob("n").BlobClient()
	f, err := NewFence(bounded(t), b, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetMetadata(bounded(t), f.Metadata, &blob.SetMetadataOptions{AccessConditions: f.Conditions}); err != nil {
		t.Fatal(err)
	}
	withData := request("n")
	withData.Data = []byte("data")
	release(t, l, acquire(t, l, withData))
	release(t, l, acquire(t, l, request("n")))
	if _, err := NewFence(bounded(t), b, 3); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lower token after 7: %v", err)
	}
}

// What the service does not tell, or in a word not known here, is unknown.
func TestStateNotTold(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
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

// A lease that is broken already is broken.
func TestBreakOfABrokenLease(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	acquire(t, l, request("n"))
	w.all(reqBreak, answer(http.StatusConflict, "LeaseAlreadyBroken"))
	for what, breakIt := range map[string]func(context.Context, string) error{"Break": l.Break, "BreakNow": l.BreakNow} {
		if err := breakIt(bounded(t), "n"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
