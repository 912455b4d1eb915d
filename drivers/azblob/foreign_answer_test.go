package azblob

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/holdfast-go/holdfast/driver"
)

// foreignAnswer is the answer of a proxy that lets nothing through before a login. The login server of Azure has request IDs, too.
func foreignAnswer(r *http.Request, status int, body string) *http.Response {
	header := http.Header{"Content-Type": {"text/html"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}, "Etag": {`"1"`},
		"X-Ms-Request-Id": {"of-the-login"}, "Location": {"https://login.example/"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		Request: r}
}

// A redirect or a page of another server, such as a proxy whose session has expired, does not say that anything was done: it leaves the
// outcome open, whatever the program's transport follows.
func TestForeignAnswer(t *testing.T) {
	const page = `<html xmlns="http://www.w3.org/1999/xhtml"><body>Please log in.</body></html>`
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusPartialContent, http.StatusFound,
		http.StatusTemporaryRedirect} {
		synctest.Test(t, func(t *testing.T) {
			l := lockerWithTransport(t, func(r *http.Request) (*http.Response, error) { return foreignAnswer(r, status, page), nil })
			calls := allOperations(l)
			calls["a large batch"] = func(ctx context.Context) error {
				names := make([]string, listCost)
				for i := range names {
					names[i] = fmt.Sprint(i)
				}
				_, errs := l.InspectBatch(ctx, "", names)
				return errs[0]
			}
			calls["missing store"] = func(ctx context.Context) error { return errOf(l.MissingStore(ctx)) }
			calls["remove"] = func(ctx context.Context) error { return l.deleteBlob(ctx, "n") }
			calls["remove probe"] = func(ctx context.Context) error { return l.RemoveProbe(ctx, "n") }
			calls["fence"] = func(ctx context.Context) error { return errOf(NewFence(ctx, l.Blob("n").BlobClient(), 1)) }
			for name, call := range calls {
				err := call(t.Context())
				wantUnknown(t, fmt.Sprint(name, " answered ", status), err)
				if err != nil && !strings.Contains(err.Error(), "not that of Azure") {
					t.Errorf("%s answered %d: %v", name, status, err)
				}
			}
			var found []driver.Finding
			if err := l.Check(t.Context(), func(f driver.Finding) { found = append(found, f) }); err != nil {
				t.Error(err)
			}
			if last := found[len(found)-1]; last.Subject != subjectService || last.Level != driver.LevelWrong {
				t.Errorf("checked with answers of %d: %+v", status, last)
			}
		})
	}
}

// The service itself answers a program's own request with a condition.
func TestNotModifiedIsOfTheService(t *testing.T) {
	err := &azcore.ResponseError{StatusCode: http.StatusNotModified,
		RawResponse: &http.Response{Header: http.Header{"X-Ms-Request-Id": {"of-the-service"}}}}
	if err := Redact(err); strings.Contains(err.Error(), "not that of Azure") {
		t.Error(err)
	}
}

// Where a proxy sends a request to, the lease ID and the SAS are not sent.
func TestRedirectIsNotFollowed(t *testing.T) {
	noCredentials(t)
	t.Setenv(envSAS, "sv=2026-01-01&sig=s3cr3t")
	var elsewhere atomic.Int64
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		w.Header().Set("x-ms-version", "2026-01-01")
	}))
	defer login.Close()
	status := http.StatusFound
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, login.URL, status) }))
	defer proxy.Close()
	l, err := Open(t.Context(), "azblob://account1/locks?endpoint="+url.QueryEscape(proxy.URL+"/account1"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	for _, status = range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		for name, call := range allOperations(l) {
			wantUnknown(t, fmt.Sprint(name, " answered ", status), call(bounded(t)))
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// A fence without a condition would let every write through.
func TestFenceWithoutETag(t *testing.T) {
	l := lockerWithTransport(t, func(r *http.Request) (*http.Response, error) {
		answer := foreignAnswer(r, http.StatusOK, "")
		answer.Header.Set("x-ms-version", "2026-01-01")
		answer.Header.Del("ETag")
		return answer, nil
	})
	if f, err := NewFence(t.Context(), l.Blob("n").BlobClient(), 1); err == nil {
		t.Errorf("%+v", f)
	}
}

// Nor is it a right.
func TestForeignAnswerIsNoRight(t *testing.T) {
	t.Parallel()
	l, w := newTestContainer(t).lockerWithFaults()
	w.all(reqMetadata, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		return foreignAnswer(r, http.StatusOK, ""), nil
	})
	var write driver.Finding
	if err := l.Check(bounded(t), func(f driver.Finding) {
		if f.Subject == subjectWrite {
			write = f
		}
	}); err != nil || write.Level != driver.LevelWrong {
		t.Errorf("%+v, %v", write, err)
	}
}
