package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// newTestLocker makes a Locker whose grants start no prune, so that a test can replace its disk.
func newTestLocker(t *testing.T, dir string, c clock, opts ...Option) *Locker {
	t.Helper()
	l, err := newLocker(dir, c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	l.nextPrune = time.Now().Add(time.Hour)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func request(id string) driver.Request {
	return driver.Request{Name: "n", ID: driver.NewLeaseID(id), Owner: "me", TTL: time.Minute, Data: []byte("data")}
}

func mustAcquire(t *testing.T, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// everyCall makes each call that reads the record, and returns its error.
func everyCall(ctx context.Context, l *Locker) map[string]error {
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID("first"), TTL: time.Minute}
	errs := map[string]error{}
	_, errs["TryAcquire"] = l.TryAcquire(ctx, request("second"))
	errs["Renew"] = l.Renew(ctx, lease)
	errs["Release"] = l.Release(ctx, lease)
	_, errs["Inspect"] = l.Inspect(ctx, "n")
	errs["Break"] = l.Break(ctx, "n")
	errs["BreakNow"] = l.BreakNow(ctx, "n")
	_, _, errs["ReadData"] = l.ReadData(ctx, "n")
	errs["WriteData"] = l.WriteData(ctx, lease, nil, driver.DataRevision{Token: lease.Token})
	for _, err := range l.List(ctx, "") {
		errs["List"] = err
	}
	return errs
}

// With a damaged record every call returns an error that names the file, and leaves the file as it
// is.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newTestLocker(t, dir, newFakeClock().clock())
	mustAcquire(t, l, request("first"))
	path := filepath.Join(dir, "n.json")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(content)
	swap := func(old, put string) string {
		if !strings.Contains(whole, old) {
			t.Fatalf("the record lacks %s:\n%s", old, whole)
		}
		return strings.Replace(whole, old, put, 1)
	}
	damages := map[string]string{
		"empty":             "",
		"blank":             " \n",
		"zeros":             strings.Repeat("\x00", len(whole)),
		"text":              "held by me\n",
		"null":              "null",
		"an empty object":   "{}",
		"a list":            "[]",
		"more after it":     whole + whole,
		"a future version":  swap(`"version": 1`, `"version": 2`),
		"no version":        swap(`"version": 1,`, ``),
		"an unknown field":  swap(`"name"`, `"kind": "x", "name"`),
		"another name":      swap(`"name": "n"`, `"name": "m"`),
		"no name":           swap(`"name": "n"`, `"name": ""`),
		"no boot":           swap(`"boot": "boot 1"`, `"boot": ""`),
		"no machine":        swap(`"machine": "machine 1"`, `"machine": ""`),
		"a negative TTL":    swap(`"ttlNanoseconds": `, `"ttlNanoseconds": -`),
		"a token as text":   swap(`"token": `, `"token": "1", "renewals": `),
		"a negative token":  swap(`"token": `, `"token": -`),
		"no token":          swap(`"token": `, `"token": 0, "renewals": `),
		"an expiry as text": swap(`"expiresNanoseconds": `, `"expiresNanoseconds": "", "renewals": `),
		"no time":           swap(`"acquiredAt"`, `"renewedAt"`),
		"a bad retention":   swap(`"retentionNanoseconds": `, `"retentionNanoseconds": -`),
		"huge":              whole + strings.Repeat(" ", maxRecord),
	}
	for n := range len(whole) - 1 { // without the last brace, or more
		damages["cut at "+whole[:n]] = whole[:n]
	}
	for what, content := range damages {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		calls := everyCall(t.Context(), l)
		if strings.HasPrefix(what, "cut at ") { // one call is enough for the hundreds of them
			calls = map[string]error{"TryAcquire": calls["TryAcquire"]}
		}
		for call, err := range calls {
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: error %v, want one that names %s", what, call, err, path)
			}
			if errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %s: error %v passes for a known outcome", what, call, err)
			}
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("%s: the file was changed, to %q (%v)", what, after, err)
		}
	}
	if err := os.Remove(path); err != nil { // as the error says
		t.Fatal(err)
	}
	mustAcquire(t, l, request("third"))
}

// With a folder in place of the record every call returns an error that names it.
func TestRecordIsAFolder(t *testing.T) {
	dir := t.TempDir()
	l := newTestLocker(t, dir, newFakeClock().clock())
	path := filepath.Join(dir, "n.json")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t.Context(), l) {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names %s", call, err, path)
		}
	}
}

// List yields the other records beside a damaged one. Its error names the lock, or the file if the
// name is unknown.
func TestListWithDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	l := newTestLocker(t, dir, newFakeClock().clock())
	long := strings.Repeat("d", 300)
	for _, name := range []string{"a", "B/b", "c", long} {
		req := request("first")
		req.Name = name
		mustAcquire(t, l, req)
	}
	for _, name := range []string{"B/b", long} {
		if err := os.WriteFile(filepath.Join(dir, stem(name)+".json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for r, err := range l.List(t.Context(), "") {
		if err != nil {
			if !strings.Contains(err.Error(), stem(r.Name)) && !strings.Contains(err.Error(), r.Name) {
				t.Errorf("the error of %q does not name it: %v", r.Name, err)
			}
			r.Name += ": error"
		}
		got = append(got, r.Name)
	}
	if want := []string{"B/b: error", "a", "c", stem(long) + ": error"}; !slices.Equal(got, want) {
		t.Errorf("List yields %q, want %q", got, want)
	}
}

// A user who can read the folder cannot act for the holder.
func TestRecordHidesTheID(t *testing.T) {
	dir := t.TempDir()
	l := newTestLocker(t, dir, newFakeClock().clock())
	const id = "9b2de7a4-1c70-4c7c-a2a9-6f1f1d1f9a11"
	mustAcquire(t, l, request(id))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.Name()+string(content), id) {
			t.Errorf("%s shows the lease ID", e.Name())
		}
	}
}
