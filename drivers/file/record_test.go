package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// With a damaged record every call returns an error that names the file, and leaves the file as it
// is.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	mustAcquire(t, l, request("first"))
	path := filepath.Join(dir, "n.json")
	content := must(os.ReadFile(path))
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
		"the last token":    swap(`"token": `, `"token": 9223372036854775807, "renewals": `),
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
		write(t, path, content)
		calls := everyCall(t.Context(), l)
		if strings.HasPrefix(what, "cut at ") { // one call is enough for the hundreds of them
			calls = map[string]error{"TryAcquire": calls["TryAcquire"]}
		}
		for call, err := range calls {
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: error %v, want ErrDamaged with %s", what, call, err, path)
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
	l, dir := freshLocker(t)
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
	l, dir := freshLocker(t)
	long := strings.Repeat("d", 300)
	for _, name := range []string{"a", "B/b", "c", long} {
		req := request("first")
		req.Name = name
		mustAcquire(t, l, req)
	}
	for _, name := range []string{"B/b", long} {
		write(t, filepath.Join(dir, stem(name)+".json"), "")
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
	l, dir := freshLocker(t)
	const id = "9b2de7a4-1c70-4c7c-a2a9-6f1f1d1f9a11"
	mustAcquire(t, l, request(id))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content := must(os.ReadFile(filepath.Join(dir, e.Name())))
		if strings.Contains(e.Name()+string(content), id) {
			t.Errorf("%s shows the lease ID", e.Name())
		}
	}
}

// FuzzRecord checks that every record that can be read is written back as it is, and that a grant
// that follows it can be read, too. A record that the driver writes is never too large to be read.
func FuzzRecord(f *testing.F) {
	whole, err := record{Version: version, Name: "n", Machine: "machine 1", Boot: "boot 1", Used: time.Hour, Retention: time.Hour,
		Stored: lockrecord.Stored{Lock: lockstate.Lock{Holder: lockrecord.Digest(driver.NewLeaseID("first")), Owner: "me", Token: 7,
			TTL: time.Minute, Expires: time.Hour,
			AcquiredAt: time.UnixMilli(1), RenewedAt: time.UnixMilli(2), Renewals: 1, Broken: true, Data: []byte("data"), Writes: 2}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"name":"n","machine":"m","boot":"b","token":9223372036854775806,` +
		`"acquiredAt":"9999-12-31T23:59:59.999999999-23:59"}`))
	f.Add([]byte(`{"version":1,"Name":"\ud800","name":"\u2028","machine":"m","boot":"b","token":1,` +
		`"acquiredAt":"0000-01-01T00:00:00+23:59","data":""}`))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		rec, err := decode(content)
		if err != nil {
			return
		}
		first := mustEncode(t, rec)
		again, err := decode(first)
		if err != nil {
			t.Fatalf("%s becomes %s, which cannot be read: %v", content, first, err)
		}
		if second := mustEncode(t, again); !bytes.Equal(first, second) {
			t.Errorf("%s becomes %s and then %s", content, first, second)
		}
		if rec.Token == 0 || rec.Token >= lockrecord.LastToken || rec.Holder != "" && rec.TTL <= 0 || rec.Retention < 0 {
			t.Errorf("%s is accepted: %+v", content, rec)
		}
		last := rec.Token
		req := driver.Request{Name: rec.Name, ID: driver.NewLeaseID("next"), Owner: rec.Owner, TTL: time.Minute}
		if rec.BreakNow(lockstate.Moment{Wall: time.UnixMilli(2)}); last == lockrecord.LastToken-1 ||
			req.Validate(driver.Info{Limits: limits}) != nil {
			return
		}
		rec.Acquire(req, lockrecord.Digest(driver.NewLeaseID("next")), lockstate.Moment{Elapsed: time.Hour, Wall: time.UnixMilli(3).UTC()})
		granted, err := decode(mustEncode(t, rec))
		if err != nil || granted.Token <= last || granted.Holder != lockrecord.Digest(driver.NewLeaseID("next")) ||
			!bytes.Equal(granted.Data, rec.Data) {
			t.Errorf("%s is granted as %+v, error %v", content, granted, err)
		}
		if size := len(mustEncode(t, rec)); len(rec.Data) <= limits.MaxData && len(rec.Machine)+len(rec.Boot) < 1000 && size > maxRecord {
			t.Errorf("the record of %q has %d bytes", rec.Name, size)
		}
	})
}

func mustEncode(t *testing.T, rec record) []byte {
	t.Helper()
	content, err := rec.encode()
	if err != nil {
		t.Fatalf("%+v: %v", rec, err)
	}
	return content
}

// A damaged history is no error: what is whole behind the damage stays, and the last holder is known from the record.
func TestDamagedHistory(t *testing.T) {
	l, dir := freshLocker(t)
	path := filepath.Join(dir, "n.json")
	past := func() string {
		var all []string
		for _, one := range must(l.Inspect(t.Context(), "n")).History {
			all = append(all, one.Owner+" "+one.End.String())
		}
		return strings.Join(all, ", ")
	}
	hold := func(ids ...string) {
		for _, id := range ids {
			req := request(id)
			req.Owner = id
			mustRelease(t, l, mustAcquire(t, l, req))
		}
	}
	hold("a", "b", "c")
	content := must(os.ReadFile(path))
	rec := must(decode(content))
	whole := rec.HistoryText()
	if got := past(); got != "c released, b released, a released" {
		t.Fatalf("the history is %q", got)
	}
	for damaged, want := range map[string]string{
		"damaged,1;2": "c unknown", "": "c unknown", whole + ",": "c unknown",
		strings.Replace(whole, ";r;a", ";r", 1): "c released, b released",
	} {
		write(t, path, strings.Replace(string(content), whole, damaged, 1))
		if got := past(); got != want {
			t.Errorf("with the history %q it is %q, want %q", damaged, got, want)
		}
	}
	hold("d")
	if got := past(); !strings.HasPrefix(got, "d released, c ") {
		t.Errorf("after a tenure behind a damaged history it is %q", got)
	}
}

func TestHistoryLength(t *testing.T) {
	dir := t.TempDir()
	for n := range 3 {
		l := newTestLocker(t, dir, newFakeClock().clock(), WithHistory(n))
		for range 4 {
			mustRelease(t, l, mustAcquire(t, l, request("first")))
		}
		content := must(os.ReadFile(filepath.Join(dir, "n.json")))
		rec, err := decode(content)
		if err != nil || len(rec.Tenures()) != n || strings.Contains(string(content), "past") != (n > 0) || l.Info().History != n {
			t.Errorf("%d past holders, error %v, want %d:\n%s", len(rec.History), err, n, content)
		}
	}
	for _, n := range []int{-1, driver.MaxHistory + 1} {
		if _, err := newLocker(dir, newFakeClock().clock(), WithHistory(n)); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "history") {
			t.Errorf("WithHistory(%d): %v", n, err)
		}
	}
}
