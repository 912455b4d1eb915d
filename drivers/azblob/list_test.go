package azblob

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Lockers with different prefixes do not see each other's locks, nor other blobs in the
// container.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	lockers := []*Locker{store.locker(), store.locker(WithPrefix("a")), store.locker(WithPrefix("a/b")), store.locker(WithPrefix("b"))}
	if _, err := store.client.NewBlockBlobClient("strangers").Upload(bounded(t), requestBody(nil), nil); err != nil {
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

// What a server between takes out of an answer, or what is no listing, is an error, and no panic of the program.
func TestListingThatIsNone(t *testing.T) {
	noCredentials(t)
	body := ""
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-version", "2026-01-01")
		_, _ = io.WriteString(w, body)
	}))
	defer service.Close()
	address := "azblob://emulator/locks?endpoint=" + url.QueryEscape(service.URL+"/"+emulatorAccount)
	l, err := Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	names := make([]string, listCost)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	calls := map[string]func() error{
		"list": func() (last error) {
			for _, err := range l.List(bounded(t), "") {
				last = err
			}
			return last
		},
		"prune":  func() error { return errOf(l.Prune(bounded(t), "", minIdleTime)) },
		"batch":  func() error { _, errs := l.InspectBatch(bounded(t), "", names); return errs[0] },
		"remove": func() error { return deleteAll(bounded(t), address) },
		"check":  func() error { return l.Check(bounded(t), func(driver.Finding) {}) },
	}
	for _, body = range []string{"", `<html xmlns="http://www.w3.org/1999/xhtml"/>`, "<EnumerationResults/>"} {
		for name, call := range calls {
			if err := call(); name != "check" {
				wantUnknown(t, name+" answered "+body, err)
			}
		}
	}
	body = "<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>"
	for name, call := range calls {
		if err := call(); err != nil && name != "batch" { // its names are read one by one
			t.Errorf("%s of a blob without a name: %v", name, err)
		}
	}
}
