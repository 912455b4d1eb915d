package describe

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// An unknown value is null in JSON and "unknown" in text, never zero.
func TestUnknownIsNeverZero(t *testing.T) {
	var out bytes.Buffer
	record := holdfast.Record{Name: "x", State: driver.StateHeld}
	if err := json.NewEncoder(&out).Encode(JSON(record)); err != nil {
		t.Fatal(err)
	}
	want := `{"name":"x","state":"held","owner":null,"token":null,"ttlMs":null,` +
		`"remainingMs":null,"acquiredAt":null,"renewedAt":null,"broken":false,"endless":false,"data":null}` + "\n"
	if out.String() != want {
		t.Errorf("JSON:\n%swant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := (Lock{Record: record}).WriteStatus(&out, "file:/locks"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "unknown"); got != 5 {
		t.Errorf("status says unknown %d times, not 5:\n%s", got, out.String())
	}
	if got, want := Holder(record), "an unknown owner"; got != want {
		t.Errorf("holder: %q, want %q", got, want)
	}

	// A remaining time of zero is not the same as an unknown one.
	record.RemainingKnown = true
	if got := JSON(record).RemainingMs; got == nil || *got != 0 {
		t.Errorf("remaining: %v, want 0", got)
	}
}

// Empty data are as none: not every backend tells them apart.
func TestJSONOfEmptyData(t *testing.T) {
	if lock := JSON(holdfast.Record{Name: "job", Data: []byte{}}); lock.Data != nil {
		t.Errorf("%q, want null", lock.Data)
	}
}

// FuzzLockJSON reads the JSON of a lock back.
func FuzzLockJSON(f *testing.F) {
	f.Add("n", "me", uint64(7), int64(time.Second), int64(5), true, int64(1), []byte("x"))
	f.Add("", "", uint64(0), int64(0), int64(0), false, int64(math.MinInt64), []byte(nil))
	f.Fuzz(func(t *testing.T, name, owner string, token uint64, ttl, remaining int64, known bool, acquired int64, data []byte) {
		r := holdfast.Record{Name: strings.ToValidUTF8(name, "?"), Owner: strings.ToValidUTF8(owner, "?"), Token: token, TTL: time.Duration(ttl),
			Remaining: time.Duration(remaining), RemainingKnown: known, AcquiredAt: time.UnixMilli(acquired).UTC(), Data: data}
		var b strings.Builder
		if err := json.NewEncoder(&b).Encode(JSON(r)); err != nil {
			if year := r.AcquiredAt.Year(); year >= 0 && year <= 9999 {
				t.Errorf("%+v: %v", r, err)
			}
			return
		}
		var got LockJSON
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil || strings.Count(b.String(), "\n") != 1 {
			t.Fatalf("%s: %v", &b, err)
		}
		if got.Name != r.Name || (got.Owner == nil) != (r.Owner == "") || got.Owner != nil && *got.Owner != r.Owner ||
			(got.Token == nil) != (token == 0) || got.Token != nil && *got.Token != token || string(got.Data) != string(data) ||
			(got.TTLMs == nil) != (ttl <= 0) || (got.RemainingMs == nil) == known || known && *got.RemainingMs != r.Remaining.Milliseconds() {
			t.Errorf("%+v became %s", r, &b)
		}
	})
}
